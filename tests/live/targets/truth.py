"""Lets a program stop at a place and say exactly what its stack is there, in 3.8's syntax.

A stack printed by a Python function is already another one when the next line runs. So each thread stops inside *one*
call of a chain of C functions: the first step records the stack, the last one blocks, and between them no bytecode of
any frame below moves. The record is then true for as long as the thread is blocked.
"""

import collections
import functools
import json
import operator
import os
import sys
import threading

_told = []
_output = bytearray()


def position(frame):
    """(line, end_line, column, end_column) of a frame as the interpreter has it; Nones where it has none."""
    code = frame.f_code
    if not hasattr(code, "co_positions"):
        return frame.f_lineno, None, None, None
    for index, found in enumerate(code.co_positions()):
        if index == frame.f_lasti // 2:
            return found
    return frame.f_lineno, None, None, None


def describe(frame):
    code = frame.f_code
    _, end_line, column, end_column = position(frame)
    return {
        "function": code.co_name,
        "qualname": getattr(code, "co_qualname", None),
        "file": code.co_filename,
        "line": frame.f_lineno,
        "end_line": end_line,
        "column": column,
        "end_column": end_column,
    }


def stack_of(frame):
    frames = []
    while frame is not None:
        frames.append(describe(frame))
        frame = frame.f_back
    return frames


def _record():
    thread = threading.current_thread()
    _told.append(
        {
            "thread_id": thread.ident,
            "native_id": threading.get_native_id(),
            "name": thread.name,
            "frames": stack_of(sys._getframe(1)),
        }
    )


def _compose():
    _output[:] = json.dumps({"threads": _told, "version": sys.version}).encode() + b"\n"


def chain(*steps):
    """A C function that calls each of the steps, without a Python frame of its own."""
    return functools.partial(collections.deque, map(operator.methodcaller("__call__"), steps), 0)


def _print():
    """A C function that writes what was composed. A blocking pipe takes all of it."""
    return functools.partial(os.write, 1, _output)


def main_stop(last_step=None):
    """Returns what the main thread calls to stop for good: it prints the record of all threads, then waits for input
    (or does last_step, a C function)."""
    return chain(_record, _compose, _print(), last_step or functools.partial(os.read, 0, 1))


class Threads:
    """Threads that stop at places of their own. Start them all, then have the main thread stop."""

    def __init__(self):
        self._arrived = threading.Lock()
        self._never = threading.Lock()
        self._arrived.acquire()
        self._never.acquire()

    def stop(self):
        """Returns what a thread calls to stop for good."""
        return chain(_record, self._arrived.release, self._never.acquire)

    def start(self, function, *arguments, name=None):
        """Starts a daemon thread that calls function(*arguments), which must come to a stop(), and waits for that. The
        thread is then between two C calls of the chain, or blocked in the last."""
        thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
        thread.start()
        self.await_one()
        return thread

    def await_one(self):
        """Waits until one more thread has come to its stop()."""
        self._arrived.acquire()
