"""A child process that stops and tells of itself. Arguments: how it is made, and by the main thread or another."""

import multiprocessing
import os
import sys
import threading

import truth


def stop_in_child():
    truth.forget()
    truth.main_stop()()


def fork():
    if os.fork() == 0:
        stop_in_child()
    os.wait()


def fork_twice():
    if os.fork() == 0:
        fork()
    os.wait()


def fork_with_thread():
    """The child starts a thread of its own and has one that did not survive."""
    threading.Thread(target=threading.Lock, name="gone").start()
    never = threading.Lock()
    never.acquire()
    threading.Thread(target=never.acquire, name="not in the child", daemon=True).start()
    if os.fork() == 0:
        truth.forget()
        threads = truth.Threads()
        threads.start(lambda: threads.stop()(), name="of the child")
        truth.main_stop()()
    os.wait()


def process(method):
    made = multiprocessing.get_context(method).Process(target=stop_in_child, name="worker")
    made.start()
    made.join()


WAYS = {
    "fork": fork,
    "fork_twice": fork_twice,
    "fork_with_thread": fork_with_thread,
    "multiprocessing_fork": lambda: process("fork"),
    "multiprocessing_spawn": lambda: process("spawn"),
    "multiprocessing_forkserver": lambda: process("forkserver"),
}

if __name__ == "__main__":
    way = WAYS[sys.argv[1]]
    if sys.argv[2] == "main":
        way()
    else:
        thread = threading.Thread(target=way, name="forker")
        thread.start()
        thread.join()
