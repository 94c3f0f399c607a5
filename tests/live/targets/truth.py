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

extra = {}  # told beside the threads
_told = []
# What the threads of other interpreters told: {interpreter's id: threads}.
_others = {}
_output = bytearray()

# Types whose repr strobe promises to show as Python writes it.
SIMPLE = (type(None), bool, int, float, complex, str, bytes, bytearray)
# Whether the record of a frame has its f_locals in it.
with_locals = False
# {(co_name, co_filename): dict} of the bodies that run in a dict which their f_locals does not show.
namespaces = {}


def position(frame):
    """(line, end_line, column, end_column) of a frame as the interpreter has it; Nones where it has none."""
    code = frame.f_code
    if not hasattr(code, "co_positions"):
        return frame.f_lineno, None, None, None
    for index, found in enumerate(code.co_positions()):
        if index == frame.f_lasti // 2:
            return found
    return frame.f_lineno, None, None, None


def simple(value):
    """Whether it and all in it are of such types: what it refers to is then no other object that may change."""
    if type(value) in (list, tuple, set, frozenset):
        return all(map(simple, value))
    if type(value) is dict:
        return all(map(simple, value)) and all(map(simple, value.values()))
    return type(value) in SIMPLE


def argument_names(code):
    """As inspect.getargs gives them: positional, keyword-only, *args, **keywords."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # CO_VARARGS, CO_VARKEYWORDS
    return code.co_varnames[:count]


def variables_of(frame):
    """f_locals. From 3.13 on that of a module or class body *in a comprehension* has only the comprehension's variables
    (and a class body's free variables, which are not its own) instead of these too (FrameLocalsProxy, PEP 667)."""
    code = frame.f_code
    found = dict(frame.f_locals.items())
    if sys.version_info < (3, 13) or type(frame.f_locals) is not type(sys._getframe().f_locals):
        return found
    if code.co_flags & 0x01:  # CO_OPTIMIZED
        return found
    own = {name: value for name, value in found.items() if name not in code.co_freevars}
    return {**namespaces.get((code.co_name, code.co_filename), frame.f_globals), **own}


def locals_of(frame):
    arguments = argument_names(frame.f_code)
    return {
        name if isinstance(name, str) else repr(name): {
            "type": type(value).__name__,
            "value": repr(value) if simple(value) else None,
            "argument": name in arguments,
        }
        for name, value in variables_of(frame).items()
    }


def describe(frame):
    code = frame.f_code
    _, end_line, column, end_column = position(frame)
    told = {"locals": locals_of(frame)} if with_locals else {}
    return {
        **told,
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


def name_of_thread():
    """As threading has it; where it does not know the thread, the kernel's name. (threading.current_thread() would make
    the thread known.)"""
    known = threading._active.get(threading.get_ident())
    if known is not None:
        return known.name
    with open("/proc/thread-self/comm") as comm:
        return comm.read()[:-1]


def record_of(frame):
    return {
        "thread_id": threading.get_ident(),
        "native_id": threading.get_native_id(),
        "name": name_of_thread(),
        "frames": stack_of(frame),
    }


def _record():
    _told.append(record_of(sys._getframe(1)))


def _compose():
    told = dict(extra, threads=_told, interpreters=_others, pid=os.getpid(), version=sys.version)
    _output[:] = json.dumps(told).encode() + b"\n"


def chain(*steps):
    """A C function that calls each of the steps, without a Python frame of its own."""
    return functools.partial(collections.deque, map(operator.methodcaller("__call__"), steps), 0)


def _print(descriptor):
    """A C function that writes what was composed. A blocking pipe takes all of it."""
    return functools.partial(os.write, descriptor, _output)


def main_stop(last_step=None, before=_record, descriptor=1):
    """Returns what the main thread calls to stop for good: it prints the record of all threads, then waits for input
    (or does last_step, a C function)."""
    return chain(before, _compose, _print(descriptor), last_step or functools.partial(os.read, 0, 1))


def forget():
    """For a child process, which has only the thread that forked."""
    del _told[:]


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
