# -*- coding: utf-8 -*-
"""Stops deep in nearly every kind of Python function."""

import functools
import sys

import truth

stop = truth.main_stop()


def plain(function):
    result = function()
    return result


class Thing:
    def __init__(self, function):
        self.function = function
        self.result = (
            self.method(1, key="two")
        )

    def method(self, number, *, key):
        return [number, key, self.value]

    @property
    def value(self):
        return self.of_class(self.function)

    @classmethod
    def of_class(cls, function):
        return cls.static(function)

    @staticmethod
    def static(function):
        def inner():
            return (lambda first, second: first + plain(function) + second)(1, 2)

        return inner()

    class Nested:
        def __call__(self, function):
            return Thing(function)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments, **keywords):
        return function(*arguments, **keywords)

    return wrapper


@decorated
def from_c(function):
    """Python that C calls: sorted's key, map, a comparison, a hash."""

    class Key:
        def __lt__(self, other):
            return function() is None

    return sorted([1, 2], key=lambda _: Key())


def generator(function):
    yield 1
    yield (lambda: function())()


def delegating(function):
    yield from generator(function)


def comprehension(function):
    return [
        value
        for value in delegating(function)
        if value
    ]


def naïve_ünïcode(function):
    日本 = [comprehension(function) for _ in "é"]  # columns count bytes, not characters
    return "ä€😀", 日本, plain(function)


def multi_line(function):
    return plain(
        functools.partial(
            naïve_ünïcode,
            function
        )
    )


def in_class_body(function):
    class Body:
        attribute = multi_line(function)

    return Body


async def leaf(function):
    return in_class_body(function)


async def awaiting(function):
    return await leaf(function)


def drive(function):
    coroutine = awaiting(function)
    try:
        coroutine.send(None)
    finally:
        coroutine.close()


def executed(function):
    exec(compile("def from_text(f):\n    return f()\nfrom_text(drive_it)", "<made up>", "exec"), {"drive_it": function})


def with_statement(function):
    class Manager:
        def __enter__(self):
            function()

        def __exit__(self, *_):
            pass

    with Manager():
        pass


def handling(function):
    try:
        raise ValueError
    except ValueError:
        try:
            return 1
        finally:
            function()


def chain(*functions):
    """Each calls the next: chain(f, g, h)() is f(lambda: g(h))."""
    call = functions[-1]
    for function in reversed(functions[:-1]):
        call = functools.partial(function, call)
    return call


if __name__ == "__main__":
    sys.setrecursionlimit(2000)
    chain(Thing, Thing.Nested(), from_c, with_statement, handling, executed, drive, stop)()
