# -*- coding: utf-8 -*-
"""The program whose images are recorded: a little of everything that a decoder must know. In 3.8's syntax."""

import collections
import datetime
import enum
import functools
import sys
import threading

import truth

threads = truth.Threads()


class Colour(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", "x y")


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slots:
    __slots__ = ("left", "right")

    def __init__(self):
        self.left = None
        self.right = self


class Method:
    def method(self, stop, größe="ß"):
        numbers = [0, -1, 2**30, 2**70, -(2**100), True, None, 1.5, -0.0, float("inf"), 1 + 2j, ...]
        texts = ["", "ascii", "Größe", "線程", "🧵", "\ud800", "it's", 'say "it\'s"', b"bytes\x00", bytearray(b"array")]
        return self, stop(), numbers, texts


def containers(stop):
    nested = {"key": [1, (2, {3, 4}), {}], 5: frozenset("a"), (6,): None}
    recursive = [nested]
    recursive.append(recursive)
    plain = Plain(name="plain", values=[1, 2])
    slots = Slots()
    point, red = Point(1, 2), Colour.RED
    deque = collections.deque([1, 2], maxlen=3)
    default = collections.defaultdict(int, a=1)
    kinds = [Plain, containers, len, "".join, sys, plain.__init__, range(3), slice(1, None), ValueError("no")]
    times = [
        datetime.date(2020, 2, 29),
        datetime.datetime(2020, 2, 29, 12, 30, 1, 5, tzinfo=datetime.timezone.utc),
        datetime.time(1, 2, fold=1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3), "there")),
        datetime.timedelta(days=-1, microseconds=3),
    ]
    cell = 7

    def inner():
        return stop(), cell

    return inner(), nested, recursive, plain, slots, point, red, deque, default, kinds, times


def generator(stop):
    yield 1
    yield from (stop() for _ in range(1))


def iterate(stop):
    return list(generator(stop))


async def coroutine(stop):
    return stop()


def drive(stop):
    try:
        coroutine(stop).send(None)
    except StopIteration as result:
        return result.value


class Body:
    """A class body is a frame too, with a namespace of its own."""

    value = 1
    start = staticmethod(lambda stop: threads.start(containers, stop, name="containers"))


# A frame of two kilobytes, so that a few of them are more than a chunk of the data stack (16 KiB) holds.
exec(
    compile(
        "def wide(depth, stop):\n"
        "    if not depth:\n"
        "        return stop()\n"
        "    return wide(depth - 1, stop)\n"
        "    {} = 0\n".format(" = ".join("unset%d" % number for number in range(250))),
        "wide.py",
        "exec",
    )
)


def main():
    if sys.version_info >= (3, 14):
        import target_tasks

        threads.start(target_tasks.start, threads.stop(), name="tasks")
    Body.start(threads.stop())
    threads.start(Method().method, threads.stop(), name="Größe")
    threads.start(iterate, threads.stop(), name="線程 generator")
    threads.start(drive, threads.stop(), name="🧵 coroutine")
    # The newest thread: tests falsify its frames.
    threads.start(functools.partial(wide, 12), threads.stop(), name="wide")  # noqa: F821
    truth.main_stop()()


class Main:
    main()
