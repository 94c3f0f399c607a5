"""A recursion of the depth given, in a thread with a stack to match; and one of generators."""

import sys
import threading

import truth


def recurse(depth, stop):
    if depth == 0:
        return stop()
    return recurse(depth - 1, stop)


def generators(depth, stop):
    if depth == 0:
        stop()
    yield
    yield from generators(depth - 1, stop)


def exhaust(depth, stop):
    for _ in generators(depth, stop):
        pass


if __name__ == "__main__":
    depth = int(sys.argv[1])
    sys.setrecursionlimit(depth + 1000)
    threading.stack_size(512 << 20)
    threads = truth.Threads()
    threads.start(recurse, depth, threads.stop(), name="recursion")
    threads.start(exhaust, min(depth, 500), threads.stop(), name="generators")
    truth.main_stop()()
