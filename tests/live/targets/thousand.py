"""As many threads as the argument says, all stopped in the same place; says how many it has."""

import json
import sys
import threading

import truth

threading.stack_size(64 << 10)
threads = truth.Threads()


def leaf(stop):
    stop()


try:
    for number in range(int(sys.argv[1])):
        threads.start(leaf, threads.stop(), name="thread %d" % number)
except RuntimeError:
    pass  # the system allows no more
truth.main_stop()()
