"""Pairs of functions that do the same, one by calling a helper for each step and one by itself, in shares of 10:90,
50:50 and 90:10; says what each took by the thread's own clock.

usage: alike.py SECONDS
"""

import json
import sys
import time


def step(x, i):
    return (x * 31 + i) & 0xFFFF


CALLING = """
def calling_{0}(seconds, clock):
    end = clock() + seconds
    while clock() < end:
        x = 0
        for i in range(300):
            x = step(x, i)
"""
INLINED = """
def inlined_{0}(seconds, clock):
    end = clock() + seconds
    while clock() < end:
        x = 0
        for i in range(300):
            x = (x * 31 + i) & 0xFFFF
"""


def main():
    seconds, spent, clock = float(sys.argv[1]), {}, time.thread_time
    scope = {"step": step}
    for percent in (10, 50, 90):
        exec((CALLING + INLINED).format(percent), scope)
        for name, share in (("calling_", percent / 100), ("inlined_", 1 - percent / 100)):
            start = clock()
            scope[name + str(percent)](seconds * share, clock)
            spent[name + str(percent)] = clock() - start
    print(json.dumps(spent))


if __name__ == "__main__":
    main()
