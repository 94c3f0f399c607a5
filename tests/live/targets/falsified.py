# -*- coding: utf-8 -*-
"""falsified.py KIND: writes nonsense over its own interpreter's list of threads, says so, and never returns to Python.

A PyThreadState begins with prev, next and interp, the neighbours in the list and the interpreter (Include/cpython/
pystate.h 3.8 to 3.15); the list begins with the newest thread."""

import ctypes
import os
import sys

WORD = ctypes.sizeof(ctypes.c_void_p)
# More than a PyThreadState has in any version, and than strobe reads of it.
COPY_BYTES = 1024

get_state = ctypes.pythonapi.PyThreadState_Get
get_state.restype = ctypes.c_void_p
state = get_state()


def set_next(address, value):
    ctypes.c_void_p.from_address(address + WORD).value = value


def ring(length):
    """The thread is followed by so many copies of itself, and the last of them by the thread."""
    buffer = ctypes.create_string_buffer(COPY_BYTES * length)
    addresses = [ctypes.addressof(buffer) + COPY_BYTES * index for index in range(length)]
    for address in addresses:
        ctypes.memmove(address, state, COPY_BYTES)
    for address, following in zip([state] + addresses, addresses + [state]):
        set_next(address, following)
    return buffer


kept = ring(int(sys.argv[1]))
os.write(1, b'"falsified"\n')
os.read(0, 1)
