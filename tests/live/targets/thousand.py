"""As many threads as the first argument says, all stopped in the same place, as many calls deep as the second says; says
how many it has."""

import json
import sys
import threading

import truth

threading.stack_size(256 << 10)
threads = truth.Threads()


def leaf(stop, depth=int(sys.argv[2]) if len(sys.argv) > 2 else 0):
    if depth > 0:
        leaf(stop, depth - 1)
    else:
        stop()


try:
    for number in range(int(sys.argv[1])):
        threads.start(leaf, threads.stop(), name="thread %d" % number)
except RuntimeError:
    pass  # the system allows no more
truth.main_stop()()
