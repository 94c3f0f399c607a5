"""Two threads that never run Python, beside one that does."""

import ctypes
import os

import truth

library = ctypes.CDLL(None)
library.pthread_create.argtypes = [ctypes.c_void_p] * 4
library.pthread_setname_np.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
kept = []
before = set(os.listdir("/proc/self/task"))
for name in (b"native one", b"\xff\x1b[31m"):
    thread = ctypes.c_ulong()
    kept.append(thread)
    function = ctypes.cast(library.pause, ctypes.c_void_p)
    assert library.pthread_create(ctypes.addressof(thread), None, function, None) == 0
    assert library.pthread_setname_np(thread.value, name) == 0
native = map(int, set(os.listdir("/proc/self/task")) - before)

threads = truth.Threads()
threads.start(lambda: threads.stop()(), name="python")
truth.extra["native"] = sorted(native)
truth.main_stop()()
