"""Threads that stay, deep in calls, while others (or, by the argument, interpreters) come and go all the time."""

import sys
import threading
import time

import truth

DEPTH, STAYING = 100, 15


def descend(stop, depth):
    if depth > 0:
        descend(stop, depth - 1)
    else:
        stop()


def pass_by():
    time.sleep(0.002)


def make_threads():
    while True:
        threading.Thread(target=pass_by).start()
        time.sleep(0.0001)


def make_interpreters():
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    while True:
        interpreter = module.create()
        time.sleep(0.001)
        module.destroy(interpreter)


MAKERS = {"threads": make_threads, "interpreters": make_interpreters}

threads = truth.Threads()
for _ in range(STAYING):
    threads.start(descend, threads.stop(), DEPTH)
threading.Thread(target=MAKERS[sys.argv[1]], daemon=True).start()
truth.main_stop()()
