# -*- coding: utf-8 -*-
"""Makes values of every kind and says where each is, what its type is called and what repr() makes of it, or what strobe
is to make of it where the two differ by intention. Then waits for its standard input to end.

Values are seeded, so that every run has the same."""

import collections
import ctypes
import dataclasses
import enum
import functools
import json
import math
import random
import struct
import sys

RANDOM = random.Random(20240229)
values = []  # keeps everything alive
cases = []


def add(value, expected=None, group=None):
    values.append(value)
    cases.append({
        "address": id(value),
        "type": type(value).__name__,
        "text": repr(value) if expected is None else expected,
        "group": group or type(value).__name__,
    })


def add_integers():
    for power in list(range(0, 130)) + [300, 1000, 3000, 14284]:
        for delta in (-1, 0, 1):
            add(2**power + delta)
            add(-(2**power) + delta)
    for power in range(60):
        add(10**power)
        add(10**power - 1)
    add(10**4300 - 1)
    for _ in range(400):
        add(RANDOM.getrandbits(RANDOM.randint(1, 400)) * RANDOM.choice((1, -1)))
    add(1 << 20000, "<int, 20001 bits>")
    add(-(1 << 14400), "<int, 14401 bits>")


def add_floats():
    for value in (0.0, -0.0, 1.0, -1.0, 0.1, 1e15, 1e16, 1e17, 123456789012345680.0, 1e-4, 1e-5, 0.00012345, 5e-324,
                  sys.float_info.max, sys.float_info.min, math.inf, -math.inf, math.nan, 1e22, 1e23, 9007199254740993.0,
                  2.5, 100.0, 1e100):
        add(value)
    for exponent in range(-1074, 1024):
        add(math.ldexp(1.0, exponent))
    for _ in range(3000):
        add(struct.unpack("<d", struct.pack("<Q", RANDOM.getrandbits(64)))[0])
        add(RANDOM.uniform(-1000, 1000))
        add(round(RANDOM.uniform(-1000, 1000), RANDOM.randint(0, 6)))
    for _ in range(300):
        add(complex(RANDOM.choice((0.0, -0.0, 1.0, 1e20, math.inf, math.nan, RANDOM.random())),
                    RANDOM.choice((0.0, -0.0, 1.0, -1e-7, math.inf, -math.inf, math.nan, -RANDOM.random()))))


class Text(str):
    pass


def random_text(characters, length):
    return "".join(RANDOM.choice(characters) for _ in range(length))


def add_strings():
    # Characters on whose printability all Unicode versions since 12 agree.
    kinds = [
        "abc xyz09",
        "'\"\\\t\n\r\0\x01\x1b\x7f ab",
        "\x80\x9f\xa0\xadé¿ÿ'",
        "Жя中文\u2028\u200b\u3000\ue000'\"",
        "😀𝔘\U000e0001\U0010ffff\U000f0000",
        "a\ud800\udfff\udc80b",
    ]
    for characters in kinds + ["".join(kinds)]:
        for length in (0, 1, 2, 7, 255, 256, 257, 700):
            add(random_text(characters, length))
    for text in ("'", '"', "'\"", "it's", 'say "x"', "both ' and \"", "\\'", "\ud83d\ude00"):
        add(text)
    for characters in kinds:
        text = random_text(characters, 50)
        add(Text(text), "Text(%r)" % text, "str subclass")
    # Characters made one by one reach every branch of the table of printable ones that all versions share.
    for first in range(0, 0x3000, 64):
        old = "".join(chr(c) for c in range(first, first + 64) if known_everywhere(c))
        add(old, group="all characters")


def known_everywhere(code):
    """Whether no Unicode version after 12.1, that of Python 3.8, can have changed the character."""
    import unicodedata
    return unicodedata.category(chr(code)) != "Cn" and unicodedata.ucd_3_2_0.category(chr(code)) == unicodedata.category(chr(code))


def add_bytes():
    for length in (0, 1, 2, 255, 256, 257, 600):
        data = bytes(RANDOM.getrandbits(8) for _ in range(length))
        add(data)
        add(bytearray(data))
    add(b"it's")
    add(b'say "x"')
    add(b"'\"")
    add(bytearray(b"it's \" \\ \n"))
    shifted = bytearray(b"0123456789")
    del shifted[:4]
    add(shifted, group="bytearray without its beginning")


def random_atom():
    return RANDOM.choice((None, True, False, ..., NotImplemented, 0, -5, 10**20, 1.5, "x", "it's", b"y", 2j))


def random_value(depth):
    if depth == 0 or RANDOM.random() < 0.3:
        return random_atom()
    kind = RANDOM.randrange(5)
    count = RANDOM.choice((0, 1, 2, 3, 5))
    if kind == 0:
        return [random_value(depth - 1) for _ in range(count)]
    if kind == 1:
        return tuple(random_value(depth - 1) for _ in range(count))
    if kind == 2:
        return {random_atom(): random_value(depth - 1) for _ in range(count)}
    if kind == 3:
        return {random_atom() for _ in range(count)}
    return frozenset(random_atom() for _ in range(count))


def add_containers():
    for _ in range(300):
        add(random_value(4), group="nested")
    for length in (63, 64, 65, 1000):
        add(list(range(length)))
        add(tuple(range(length)))
        add(set(range(length)))
        add(dict.fromkeys(range(length)))
    cycle = [1]
    cycle.append(cycle)
    add(cycle, group="cycle")
    knot = {}
    knot["self"] = knot
    knot["list"] = [knot]
    add(knot, group="cycle")
    add([[[[[1]]]]], "[[[[[…]]]]]", "too deep")
    add({1: {2: {3: {4: {5: 6}}}}}, "{1: {2: {3: {4: {…}}}}}", "too deep")
    add([[[[[], (), {}]]]])
    add(range(10))
    add(range(3, -7, -2))
    add(range(1 << 70))
    add(slice(1, None, 2))


def add_dicts():
    for size in (0, 1, 5, 6, 10, 11, 100, 255, 256, 300, 2000):
        strings = {"k%d" % i: i for i in range(size)}
        integers = {i * 7: str(i) for i in range(size)}
        add(strings)
        add(integers)
        holes = dict(strings)
        for key in list(holes)[::3]:
            del holes[key]
        add(holes, group="dict after deletions")
        mixed = dict(holes)
        mixed["late"] = 1
        mixed[12] = "no longer only strings"
        add(mixed, group="dict with mixed keys")
        if size:
            last = dict(strings)
            last.popitem()
            last["again"] = 0
            add(last, group="dict after popitem")
            queue = dict(integers)
            for _ in range(size - 1):
                del queue[next(iter(queue))]
            add(queue, group="dict with deleted front")
            emptied = dict(strings)
            for key in strings:
                del emptied[key]
            add(emptied, group="dict emptied")
    cleared = {"a": 1}
    cleared.clear()
    add(cleared)
    add(dict(globals_like=1, **{"k%d" % i: i for i in range(40)}))
    ordered = collections.OrderedDict(a=1, b=2)
    add(ordered, "OrderedDict({'a': 1, 'b': 2})")
    counts = collections.defaultdict(list, a=[1])
    add(counts)
    add(collections.defaultdict(None, {1: 2}))


def add_sets():
    for size in (0, 1, 4, 5, 8, 50, 1000):
        full = {i * 31 for i in range(size)}
        add(full)
        add(frozenset(full))
        fewer = set(full)
        for item in sorted(full)[::2]:
            fewer.remove(item)
        add(fewer, group="set after deletions")
        add({"s%d" % i for i in range(size)})
    add({None, True, 2.5, "x", (1, 2), frozenset({3})})


def add_deques():
    for size in (0, 1, 63, 64, 65, 200):
        right = collections.deque(range(size))
        add(right)
        left = collections.deque()
        left.extendleft(range(size))
        left.rotate(7)
        add(left)
    add(collections.deque(range(9), maxlen=5))


class Plain:
    """Its repr is what strobe shows of a class without one of its own."""

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % item for item in vars(self).items()))


class Empty(Plain):
    pass


class Child(Plain):
    pass


class Materialised(Plain):
    pass


class Deleted(Plain):
    pass


class Many(Plain):
    pass


class Reordered(Plain):
    pass


class Replaced(Plain):
    pass


class Bloated(Plain):
    pass


class Slots:
    __slots__ = ("first", "second", "_private", "__mangled")

    def __init__(self):
        self.first = 1
        self._private = [2]
        self.__mangled = 3


class SlotsAndDict(Slots):
    __slots__ = ("third", "__dict__")


class Integer(int):
    pass


class Tuple(tuple):
    pass


class List(list):
    pass


class Dict(dict):
    pass


class Real(float):
    pass


class Set(set):
    pass


def add_instances():
    # The repr is taken of a second object in the same state: taking it of the first would materialise its __dict__.
    def same(make, group):
        first, second = make(), make()
        add(first, repr(second), group)

    def child():
        made = Child()
        made.name = "x"
        made.size = 12
        made.parent = None
        return made

    def materialised():
        made = Materialised()
        made.a = 1
        vars(made)["b"] = 2
        made.c = 3
        return made

    def deleted():
        made = Deleted()
        made.a, made.b, made.c = 1, 2, 3
        del made.b
        return made

    def put_back():
        made = deleted()
        made.b = 4
        return made

    def reordered():
        made = Reordered()
        made.z, made.y, made.x = 1, 2, 3
        return made

    def reordered_otherwise():
        made = Reordered()
        made.x, made.w, made.z = 1, 2, 3
        return made

    def many(count):
        def make():
            made = Many()
            for i in range(count):
                setattr(made, "attribute_%d" % i, i)
            return made

        return make

    def replaced():
        made = Replaced()
        made.old = 1
        made.__dict__ = {"new": 2, "newer": 3}
        return made

    def odd_keys():
        made = Plain()
        made.a = 1
        made.__dict__["b" * 100] = 2
        return made

    def exploded():
        made = Bloated()
        made.a = 1
        kept = made.__dict__
        made.b = 2
        values.append(kept)
        for i in range(40):
            setattr(made, "n%d" % i, i)
        return made

    same(Empty, "instance without attributes")
    for _ in range(3):
        same(child, "instance")
    same(materialised, "instance with its __dict__ made")
    same(deleted, "instance with a deleted attribute")
    same(put_back, "instance with a deleted attribute put back")
    same(reordered, "instance with another order")
    same(reordered_otherwise, "instance with yet another order")
    for count in (1, 5, 10, 29, 30, 31, 32, 60, 300):
        same(many(count), "instance with %d attributes" % count)
    same(replaced, "instance with another __dict__")
    same(odd_keys, "instance with a long name")
    same(exploded, "instance that outgrew its values")

    # CPython sorts them.
    add(Slots(), "Slots(_Slots__mangled=3, _private=[2], first=1)", "slots")
    bare = object.__new__(Slots)
    add(bare, "<Slots at 0x%x>" % id(bare), "slots not set")
    both = SlotsAndDict()
    both.third = 4
    both.free = 5
    add(both, "SlotsAndDict(_Slots__mangled=3, _private=[2], first=1, third=4, free=5)", "slots")
    for instance, text in (
        (Integer(5), "Integer(5)"), (Integer(-(10**30)), "Integer(%d)" % -(10**30)), (Tuple((1, 2)), "Tuple((1, 2))"),
        (List([1]), "List([1])"), (Dict(a=1), "Dict({'a': 1})"), (Real(1.5), "Real(1.5)"), (Set([1]), "Set({1})"),
    ):
        instance.extra = 1
        add(instance, text, "subclass")
    plain = object()
    add(plain, "<object at 0x%x>" % id(plain))




Point = collections.namedtuple("Point", "x y")


class SubPoint(Point):
    pass


@dataclasses.dataclass
class Data:
    number: int
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    number: int
    items: list
    name: str = "größer"


class Color(enum.Enum):
    RED = 1
    GREEN = "green"


class Number(enum.IntEnum):
    ONE = 1


class Flags(enum.Flag):
    READ = 1
    WRITE = 2


class Mistake(ValueError):
    pass


def function():
    yield


async def coroutine():
    pass


def add_special():
    add(Point(1, "two"))
    add(SubPoint(1, Point(2, 3)))
    add(Data(1))
    add(Frozen(2, [Data(3, [None])]))
    if sys.version_info >= (3, 10):
        add(dataclasses.make_dataclass("Slotted", ["a", "b"], slots=True)(1, {"c": 2.5}))
    if sys.version_info < (3, 10):  # written in C, and what it has is told by no member of a class
        partial = functools.partial(add, 1)
        add(partial, "<partial at 0x%x>" % id(partial))
        partial = functools.partial(add, 1)
        partial.note = "x"
        add(partial, "partial(note='x')")
    add(Color.RED)
    add(Color.GREEN)
    add(Number.ONE)
    add(Flags.READ)
    add(ValueError("x"))
    add(KeyError("k", 2))
    add(Mistake())
    add(OSError(2, "gone"))
    add(None)
    add(True)
    add(False)
    add(...)
    add(NotImplemented)
    add(int)
    add(dict)
    add(collections.OrderedDict)
    add(collections.deque)
    add(Point)
    add(ValueError)
    add(Mistake)
    add(type)
    add(sys, "<module 'sys'>")
    add(json, "<module 'json'>")
    add(len)
    add([].append, "<built-in method append of list object>")
    add(math.sqrt)
    add(str.upper)
    add(int.__add__)
    add(function, "<function function>")
    add(add_special, "<function add_special>")
    add(Plain.__repr__, "<function Plain.__repr__>")
    add(Empty().__repr__, "<bound method Plain.__repr__>")
    add(function(), "<generator function>")
    suspended = coroutine()
    add(suspended, "<coroutine coroutine>")
    suspended.close()
    add(function.__code__, "<code object function>")
    content = [1, 2]
    add((lambda: content).__closure__[0], "<cell: [1, 2]>")
    add(type(vars(Color))({"a": 1}))


def add_dates():
    from datetime import date, datetime, time, timedelta, timezone

    add(date(2024, 2, 29))
    add(date.min)
    add(date.max)
    add(datetime(1, 1, 1))
    add(datetime(2024, 12, 31, 23, 59, 58))
    add(datetime(2024, 12, 31, 23, 59, 0, 999999))
    add(datetime(2024, 12, 31, 23, 59, fold=1, tzinfo=timezone.utc))
    add(datetime(2024, 12, 31, tzinfo=timezone(timedelta(hours=-5), "name")))
    add(time(1, 2))
    add(time(1, 2, 3, 4, tzinfo=timezone(timedelta(minutes=30)), fold=1))
    add(timezone.utc)
    add(timedelta(0))
    add(timedelta(days=-3, microseconds=7))
    add(timedelta.max)


def add_long_names():
    """Names of types longer than what is read of a type at first; in values they are cut."""
    for name in ("Long" * 60, "Große" * 50, "a.b" * 50):
        meta = type(name, (type,), {})
        add(meta("Made", (), {"__module__": "__main__"}), "<class '__main__.Made'>")


def add_new_in_3_15():
    import gc

    class Own(frozendict):
        pass

    for value in (frozendict(), frozendict(a=1, b=[2, "c"]), frozendict({1: frozendict()}), Own(), Own(a=1)):
        add(value)
    add(sentinel("MISSING"))
    space = {}
    exec("lazy import json\nlazy import xml.dom.pulldom as pulldom\nlazy import os.path, wave as w\n"
         "lazy from collections import deque\nlazy from xml.sax import handler, saxutils as utils", space)
    # To ask the namespace for one would import it.
    lazy = [value for value in gc.get_referents(space) if type(value).__name__ == "lazy_import"]
    assert len(lazy) > 4, lazy
    values.append(space)
    for value in lazy:
        add(value)


def pointer_of_runtime():
    return ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))


def main():
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    add_integers()
    add_floats()
    add_strings()
    add_bytes()
    add_containers()
    add_dicts()
    add_sets()
    add_deques()
    add_instances()
    add_special()
    add_dates()
    add_long_names()
    if sys.version_info >= (3, 15):
        add_new_in_3_15()
    print(json.dumps({"runtime": pointer_of_runtime(), "cases": cases}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
