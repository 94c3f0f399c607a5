"""Has its own libpython or executable in memory more than once: loaded by ctypes, and mapped as a file. The argument is a
copy of it."""

import ctypes
import mmap
import os
import sys

import truth

kept = []
for path in sys.argv[1:]:
    if path.endswith(".so") or ".so." in path:
        kept.append(ctypes.CDLL(path))
        kept.append(ctypes.CDLL(path, mode=os.RTLD_GLOBAL))
    with open(path, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE))
        kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED))


def nested(stop):
    stop()


nested(truth.main_stop())
