"""Stops in a garbage collection, and holds the GIL there. The argument says how it came to the stop."""

import functools
import gc
import itertools
import sys
import weakref

import truth


class Cycle:
    def __init__(self):
        self.itself = self


def finaliser(stop):
    Cycle.__del__ = lambda self: stop()
    Cycle()


def weak_callback(stop):
    dying = Cycle()
    global kept
    kept = weakref.ref(dying, lambda _: stop())


def callback(stop):
    def called(phase, information):
        if phase == sys.argv[1]:
            stop()

    gc.callbacks.append(called)


def triggers():
    gc.collect()


WAYS = {"finaliser": finaliser, "weak_callback": weak_callback, "start": callback, "none": lambda stop: None}

if __name__ == "__main__":
    gc.disable()
    stop = truth.main_stop(functools.partial(sum, itertools.repeat(0)))
    WAYS[sys.argv[1]](stop)
    triggers()
    stop()
