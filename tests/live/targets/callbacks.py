# -*- coding: utf-8 -*-
"""Stops deep in Python code that the interpreter or C called: no call of it is written in a Python file."""

import contextlib
import ctypes
import functools
import importlib.abc
import importlib.machinery
import signal
import sys
import weakref

import truth


def key_of_sort(call):
    return sorted([3, 1, 2], key=lambda item: call() and item)


def mapped(call):
    return list(map(lambda first, second: call(), (1, 2), (3, 4)))


def reduced(call):
    return functools.reduce(
        lambda first, second: call(),
        filter(lambda _: True, range(3)),
    )


def from_foreign_function(call):
    """qsort calls back through libffi: another entry to the interpreter on the same thread."""
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda first, second: call() or 0)
    ctypes.CDLL(None).qsort((ctypes.c_int * 2)(2, 1), 2, 4, compare)


def releasing_foreign_function(call):
    """ctypes gives the GIL back around the call and takes it again in the callback."""
    ctypes.CFUNCTYPE(None)(call)()


class Operators:
    def __init__(self, call):
        self.call = call

    def __add__(self, other):
        return self.call()

    def __eq__(self, other):
        return self + other

    def __hash__(self):
        return 1

    def __contains__(self, item):
        return {self: 1}.get(Operators(self.call))

    def __getattr__(self, name):
        return (
            1 in self
        )

    def __getitem__(self, index):
        return self.missing

    def __iter__(self):
        yield self[1:2]

    def __enter__(self):
        first, *rest = self

    def __exit__(self, *reason):
        pass

    def __bool__(self):
        with self:
            pass

    def __format__(self, specification):
        return "yes" if self else "no"

    def __str__(self):
        return f"{self:x}"

    def __repr__(self):
        return "%s" % self

    def __call__(self):
        return repr(self)


def operators(call):
    return Operators(call)()


class Meta(type):
    def __call__(cls, *arguments):
        return super().__call__(*arguments)

    def __init__(cls, name, bases, space):
        super().__init__(name, bases, space)
        if "call" in space:
            space["call"]()


class Grandparent(metaclass=Meta):
    def __new__(cls, call):
        return super().__new__(cls)

    def __init__(self, call):
        self.made = call()


class Parent(Grandparent):
    def __init__(self, call):
        super().__init__(call)


class Child(Parent):
    def __init__(self, call):
        Parent.__init__(self, call)


class Simple:
    def __init__(self, call):
        self.value = call()


class Outer:
    def __init__(self, call):
        self.simple = Simple(call)


def initialisers(call):
    # Often, so that the interpreter specialises them and puts shim frames under __init__ (3.13+).
    for _ in range(100):
        Outer(int)
        Child(int)
    for _ in range(2):
        Outer(functools.partial(Child, call))


def metaclass(call_it):
    class Made(metaclass=Meta):
        call = call_it


def named_by_descriptor(call):
    class Descriptor:
        def __set_name__(self, owner, name):
            call()

    class Owner:
        attribute = Descriptor()


def exits(call):
    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, *reason):
            return call()

    with Manager() as first, \
            Manager():
        pass


@contextlib.contextmanager
def managing(call):
    try:
        yield
    finally:
        call()


def raised_through_manager(call):
    with contextlib.suppress(ZeroDivisionError), managing(call):
        1 / 0


def handlers(call):
    try:
        try:
            raise ValueError
        except ValueError as error:
            raise KeyError from error
        finally:
            try:
                call()
            finally:
                pass
    except KeyError:
        pass


def signal_handler(call):
    def handler(number, frame):
        call()

    signal.signal(signal.SIGUSR1, handler)
    signal.raise_signal(signal.SIGUSR1)
    sum(range(10))


def finaliser(call):
    class Dying:
        def __del__(self):
            call()

    dying = Dying()
    del dying


def weak_callback(call):
    class Referent:
        pass

    referent = Referent()
    reference = weakref.ref(referent, lambda _: call())
    del referent
    return reference


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, call):
        self.call = call

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "made_up_module" else None

    def exec_module(self, module):
        exec("call()", {"call": self.call})


def imports(call):
    sys.meta_path.insert(0, Importer(call))
    import made_up_module
    return made_up_module


def profiled(call):
    sys.setprofile(lambda frame, event, argument: None)
    return call()


def tracing(call):
    def trace(frame, event, argument):
        frame.f_trace_opcodes = True
        return trace

    sys.settrace(trace)
    return called_while_traced(call)


def called_while_traced(call):
    (
        call()
    )


def inside_trace_function(call):
    state = []

    def trace(frame, event, argument):
        if event == "line" and not state:
            state.append(1)
            call()
        return trace

    def traced():
        a = 1
        return a

    sys.settrace(trace)
    traced()


def monitored(call):
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return call()
    events = monitoring.events
    monitoring.use_tool_id(3, "truth")
    for event in (events.LINE, events.INSTRUCTION, events.CALL, events.PY_START):
        monitoring.register_callback(3, event, lambda *arguments: None)
    monitoring.set_events(3, events.LINE | events.INSTRUCTION | events.CALL | events.PY_START)
    return [
        called_while_traced(call) for _ in "a"
    ]


def inside_monitoring(call):
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return call()
    once = []

    def callback(code, line):
        if not once:
            once.append(1)
            call()

    def watched():
        b = 1
        return b

    monitoring.use_tool_id(4, "inside")
    monitoring.register_callback(4, monitoring.events.LINE, callback)
    monitoring.set_local_events(4, watched.__code__, monitoring.events.LINE)
    watched()


def renamed(call):
    code = (lambda: call()).__code__
    freevars = (lambda: call).__closure__
    import types

    return types.FunctionType(code.replace(co_name="new name", co_firstlineno=7000), {}, "other", None, freevars)()


def decorator(function):
    return function()


def decorated(call):
    @decorator
    @functools.partial(lambda first, function: call, 1)
    def function():
        pass


def lambdas(call):
    return (lambda f: (
        lambda: (
            f(
            )
        )
    ))(call)()


def in_context(call):
    import contextvars

    contextvars.copy_context().run(lambda: call())


def cached(call):
    @functools.lru_cache(None)
    def function(number):
        return number and function(number - 1) if number else call()

    return function(5)


def sorted_in_sorted(depth, call):
    """Recursion through C: one more entry to the interpreter at each level."""
    if depth == 0:
        return call()
    sorted([depth], key=lambda item: sorted_in_sorted(item - 1, call))


# What leaves the interpreter in a state of its own (trace functions …) comes innermost, so that it covers one stop only.
CHAINS = [
    [key_of_sort, mapped, reduced, from_foreign_function, releasing_foreign_function, operators, initialisers, metaclass,
     named_by_descriptor, exits, raised_through_manager, handlers, finaliser, weak_callback, imports, renamed,
     decorated, lambdas, in_context, cached, signal_handler],
    [initialisers, profiled, operators, lambdas],
    [initialisers, lambdas, tracing],
    [lambdas, inside_trace_function, initialisers],
    [initialisers, monitored],
    [handlers, inside_monitoring, operators],
    [functools.partial(sorted_in_sorted, 60), initialisers],
]


def run(chain, stop):
    call = stop
    for function in reversed(chain):
        call = functools.partial(function, call)
    call()


if __name__ == "__main__":
    threads = truth.Threads()
    for number, chain in enumerate(CHAINS[1:]):
        threads.start(run, chain, threads.stop(), name="chain %d" % number)
    run(CHAINS[0], truth.main_stop())
