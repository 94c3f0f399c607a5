"""Threads that come and go: as many at a time as the first argument says, as many in all as the second. Each is named.
Begins when a line comes on standard input; says how many there were, and ends."""

import os
import sys
import threading
import time

AT_ONCE, IN_ALL = int(sys.argv[1]), int(sys.argv[2])
threading.stack_size(64 << 10)


def work(ready, stop):
    deadline = time.thread_time_ns() + 2000000
    while time.thread_time_ns() < deadline:
        pass
    ready.release()
    stop.wait()


os.write(1, b"ready\n")
sys.stdin.readline()
started = 0
while started < IN_ALL:
    ready, stop = threading.Semaphore(0), threading.Event()
    threads = []
    for _ in range(min(AT_ONCE, IN_ALL - started)):
        threads.append(threading.Thread(target=work, args=(ready, stop), name="comes %d" % started))
        threads[-1].start()
        started += 1
    for _ in threads:
        ready.acquire()
    stop.set()
    for thread in threads:
        thread.join()
os.write(1, b"%d\n" % started)
sys.stdin.readline()
os._exit(0)
