"""Leaves one thread that stops, and says so before its own, which told of itself too, leaves Python (see embed_idle.c)."""

import os
import sys
import threading

sys.path.insert(0, os.path.dirname(__file__))
import truth  # noqa: E402

threads = truth.Threads()
threads.start(lambda: threads.stop()(), name="python")
here = {"thread_id": threading.get_ident(), "native_id": threading.get_native_id(), "name": "MainThread", "frames": []}
truth._told.append(here)
truth._compose()
os.write(1, truth._output)
