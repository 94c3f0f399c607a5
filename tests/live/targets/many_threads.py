"""Eight threads of which one works and the others wait; eight that work for unequal times; eight of C's own, that Python
knows nothing of, while a line of Python waits for them. Says what each took by its own clock.

usage: many_threads.py HELPER, the library made of agent_threads.c
"""

import ctypes
import json
import queue
import select
import socket
import sys
import threading
import time

COUNT = 8
NATIVE_NS = 50000000


class Told(ctypes.Structure):
    _fields_ = [("tid", ctypes.c_int64), ("cpu_ns", ctypes.c_int64)]


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        x = 0
        for i in range(300):
            x = (x * 31 + i) & 0xFFFF


def waits_for_bytes(ours, theirs):
    ours.recv(1)


def waits_for_items(items):
    items.get()


def waits_for_event(event):
    event.wait()


def waits_in_select(ours, theirs):
    select.select([ours], [], [])


def waiters():
    """Threads, and what ends them."""
    pairs = [socket.socketpair() for _ in range(4)]
    items, event = queue.Queue(), threading.Event()
    targets = [(waits_for_bytes, pair) for pair in pairs[:3]] + [(waits_in_select, pairs[3])]
    targets += [(waits_for_items, (items,))] * 2 + [(waits_for_event, (event,))]
    threads = [threading.Thread(target=target, args=arguments) for target, arguments in targets]
    ends = [pair[1] for pair in pairs]
    return threads, lambda: ([end.send(b"x") for end in ends], items.put(1), items.put(1), event.set())


def one_of_eight(spent):
    threads, end = waiters()
    for thread in threads:
        thread.start()
    start = time.thread_time()
    burn(0.4)
    spent["one_of_eight"] = time.thread_time() - start
    end()
    for thread in threads:
        thread.join()


def unequal(spent, number):
    start = time.thread_time()
    burn(0.02 * (number + 1))
    spent["unequal_%d" % number] = time.thread_time() - start


def eight_unequal(spent):
    threads = [threading.Thread(target=unequal, args=(spent, i), name="unequal_%d" % i) for i in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def waits_for_c(spent):
    helper = ctypes.CDLL(sys.argv[1])
    ends = (Told * COUNT)()
    start = time.thread_time()
    helper.run_threads(COUNT, ctypes.c_char(b"r"), ctypes.c_int64(NATIVE_NS), ends)
    spent["waits_for_c"] = time.thread_time() - start
    spent["native"] = sum(end.cpu_ns for end in ends) / 1e9


def main():
    spent = {}
    one_of_eight(spent)
    eight_unequal(spent)
    waits_for_c(spent)
    print(json.dumps(spent))


if __name__ == "__main__":
    main()
