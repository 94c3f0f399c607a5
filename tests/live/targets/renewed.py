"""Deep stacks of functions that are made anew each time: nothing that is seen of one was ever seen before. Each function
calls the next in another way: from Python, from C, as a generator, as a generator that C runs."""

import sys
import time
from types import FunctionType

DEPTH = int(sys.argv[1])
# A few looks.
LEAF_S = 0.003
LINES = 1 << 15


def by_python(levels):
    return levels[0](levels[1:])


def by_c(levels):
    return max([levels[1:]], key=levels[0])


def as_generator(levels):
    for _ in levels[0](levels[1:]):
        pass


def as_generator_in_c(levels):
    return sum(1 for _ in [levels[0](levels[1:])])


def yielding(levels):
    levels[0](levels[1:])
    yield


def working(levels):
    end = time.perf_counter() + LEAF_S
    while time.perf_counter() < end:
        len(levels)


def renewed(function, line):
    return FunctionType(function.__code__.replace(co_firstlineno=line), globals(), function.__name__)


print("ready", flush=True)
line = 0
while True:
    levels = []
    for depth in range(DEPTH):
        line = (line + 1) % LINES
        # What stands before a generator iterates over it.
        levels.append(renewed((by_python, by_c, as_generator, yielding, as_generator_in_c)[depth % 5], line))
    levels.append(renewed(working, line))
    levels[0](levels[1:])
