"""The main thread computes in C for ever and never lets the GIL go; one thread wants it, one waits for something else."""

import functools
import itertools
import json
import os
import threading

import truth

wanted = threading.Lock()
wanted.acquire()


def want():
    wanted.acquire()
    # Runs again only with the GIL (and in a free-threaded build blocks here instead).
    threads.stop()()


threads = truth.Threads()
threads.start(lambda: threads.stop()(), name="blocked")
waiting = threading.Thread(target=want, name="waiting", daemon=True)
waiting.start()

told = {"native_id": threading.get_native_id(), "waiting": waiting.native_id}
# In one chain of C calls: from the release on, no bytecode runs that could hand over the GIL.
truth.chain(
    functools.partial(os.write, 1, json.dumps(told).encode() + b"\n"),
    wanted.release,
    functools.partial(sum, itertools.repeat(0)),
)()
