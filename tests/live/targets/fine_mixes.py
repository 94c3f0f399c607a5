"""Lines in which Python and C take turns every few nanoseconds, and what of them is C's, found out by differences.

usage: fine_mixes.py FOLDER SECONDS [CASE ...]

FOLDER has the module made of empty_calls.c. A case's loop runs for SECONDS of CPU time in all, in turns with the same loop
whose calls are to C functions that do nothing. Prints {case: {"share": [low, high], "looks": n}} as JSON: the share of C in
the time of the function `case_CASE`, and how many looks one of its estimates is made of (0: none is).

There is no one truth about things of a few nanoseconds on a processor that does many of them at once. What a loop takes
more when its calls do something (and less what the release of their results takes, which is Python's) is one; what it takes
more when it makes each call twice is another; what the calls take alone is a third; how often a signal of the CPU clock finds
a flag up that is raised and lowered right around the C code of the calls is the fourth. Differences do not have what a call
hides behind what comes after it, of which a clock sees where it waits. What a sample's share is to be between.
"""

import importlib
import json
import math
import re
import sys
import time
import zlib
from collections import deque

sys.path.insert(0, sys.argv[1])
empty = importlib.import_module("empty_calls")

TURN_S = 0.015

WORLD = {
    "x": list(range(200)),
    "d": {i: i for i in range(100)},
    "s": "hello world " * 8,
    "b": b"hello world " * 8,
    "words": "the quick brown fox".split() * 3,
    "big": 3**2000,
    "big2": 7**1500,
    "m": 10**50,
    "pattern": re.compile(r"(\w+)@(\w+)\.com"),
    "text": "some text here joe@example.com and other",
    "dq": deque([1]),
    "math": math,
    "zlib": zlib,
    "k": 600,
    "number": empty.number,
    "Made": empty.Made,
    "MadeFast": empty.MadeFast,
    "o": empty.Object(),
}
CONVENTIONS = {1: "varargs", 3: "keywords", 4: "noargs", 8: "o", 0x80: "fast", 0x82: "fast_keywords"}
for name in CONVENTIONS.values():
    WORLD["empty_" + name] = getattr(empty, name)

# {case: (line, its calls: (callable, arguments, whether a new object comes of it), …)}; "{0}" stands for the first call.
CASES = {
    "sum": ("{0} * i + i * i", [("sum", "(x[:60])", False)]),
    "len": ("{0}", [("len", "(x)", False)]),
    "append": ("{0}; {1}", [("dq.append", "(k)", False), ("dq.popleft", "()", False)]),
    "strings": ("{0}; {1}; {2}", [("s.upper", "()", True), ("s.split", "()", True), ("s.replace", "('o', '00')", True)]),
    "numbers": ("{0}; {1}", [("int", "('12345678')", True), ("float", "('1.5')", True)]),
    "containers": ("{0}; {1}; {2}", [("list", "(x)", True), ("tuple", "(x)", True), ("set", "(words)", True)]),
    "bigint_calls": ("{0}; big * big2", [("pow", "(big, 3, m)", True)]),
    "libraries": ("{0}; {1}", [("pattern.search", "(text)", True), ("zlib.crc32", "(b)", True)]),
    "no_calls": ("big * big2 + i; s + s; x + x; d[5]; i in d; f'{{i}} {{s}}'; '%d' % i; Own(i).method()", []),
}


class Own:
    def __init__(self, i):
        self.i = i

    def method(self):
        return self.i


WORLD["Own"] = Own


def numpy_cases():
    try:
        import numpy
    except ImportError:
        return
    WORLD["a"] = numpy.arange(1000.0)
    CASES["numpy_operators"] = ("a * 2.0 + a", None)


def empty_of(function):
    """The name of what does nothing, called in the same way."""
    what = eval(function, WORLD)
    if isinstance(what, type):
        return "MadeFast" if empty.has_vectorcall(what) else "Made"
    if function == "sum":
        return "number"
    name = CONVENTIONS[empty.convention(what)]
    # A method is looked up as one, a function as one.
    return "o." + name if "." in function and not function.startswith(("math.", "zlib.")) else "empty_" + name


def loop(name, line):
    source = "def {}(n):\n    for i in range(n):\n        {}\n".format(name, line)
    scope = dict(WORLD)
    exec(compile(source, "<fine mixes>", "exec"), scope)
    return scope[name]


def cpu_ns(function, *arguments):
    start = time.thread_time_ns()
    function(*arguments)
    return time.thread_time_ns() - start


def times_for(function, seconds):
    n = 100
    while cpu_ns(function, n) < seconds * 1e9:
        n *= 2
    return n


def low_quarter(numbers):
    return sorted(numbers)[len(numbers) // 4]


class Watch:
    """What a loop of marked calls spends in them."""

    def __init__(self):
        self.spent_ns, self.looks, self.looks_up = [], 0, 0

    def look(self, function, *arguments):
        start = time.thread_time_ns()
        looks, looks_up = empty.watched(function, *arguments)
        self.spent_ns.append(time.thread_time_ns() - start)
        self.looks += looks
        self.looks_up += looks_up

    def inside_ns(self):
        return low_quarter(self.spent_ns) * self.looks_up / max(self.looks, 1)


def given_to(arguments):
    return eval(arguments[:-1] + (",)" if arguments != "()" else ")"), WORLD)


def mark(function, arguments):
    """The name of what makes a call and marks it."""
    name = "mark_of_" + re.sub(r"\W", "_", function)
    WORLD[name] = empty.Marked(eval(function, WORLD), given_to(arguments))
    return name


def loops(name, line, calls):
    """The case's loop; with empty calls; both with each call made twice; with marked calls."""
    written = [function + arguments for function, arguments, _ in calls or []]
    empties = [empty_of(function) + arguments for function, arguments, _ in calls or []]
    made = {"case_" + name: line.format(*written), "bare_" + name: line.format(*empties)}
    made["twice_" + name] = "; ".join([line.format(*written), *written])
    made["bare_twice_" + name] = "; ".join([line.format(*empties), *empties])
    marks = [mark(function, arguments) + arguments for function, arguments, _ in calls or []]
    made["marked_" + name] = line.format(*marks)
    return [loop(function, body) for function, body in made.items()]


def measure(name, seconds):
    line, calls = CASES[name]
    full, bare, twice, bare_twice, marked = loops(name, line, calls)
    n = times_for(full, TURN_S)
    fulls, bares, twices, bare_twices, alones, releases = [], [], [], [], [], []
    watch = Watch()
    while sum(fulls) < seconds * 1e9:
        fulls.append(cpu_ns(full, n))
        if calls:
            watch.look(marked, n)
        if calls and len(fulls) % 2 == 1:
            bares.append(cpu_ns(bare, n))
        if calls and len(fulls) % 4 == 1:
            twices.append(cpu_ns(twice, n))
            bare_twices.append(cpu_ns(bare_twice, n))
        if calls and len(fulls) % 16 == 1:
            alones.append(0.0)
            releases.append(0.0)
            for function, arguments, is_new in calls:
                what, nothing = eval(function, WORLD), eval(empty_of(function), WORLD)
                given = given_to(arguments)
                alones[-1] += empty.alone(what, given, 500) - empty.alone(nothing, given, 500)
                releases[-1] += empty.released(what, given, 10) if is_new else 0.0
    if not calls:
        return {"share": [0.0, 0.0] if calls is not None else [0.9, 1.0], "looks": 0}
    whole = low_quarter(fulls)
    more = whole - low_quarter(bares)
    again = low_quarter(twices) - whole - (low_quarter(bare_twices) - low_quarter(bares))
    released = low_quarter(releases) * n
    shares = [(more - released) / whole, (again - released) / whole, low_quarter(alones) * n / whole]
    shares.append(watch.inside_ns() / whole)
    return {"share": [max(0.0, min(shares)), min(1.0, max(shares))], "looks": watch.looks}


def main():
    numpy_cases()
    chosen = sys.argv[3:] or list(CASES)
    print(json.dumps({name: measure(name, float(sys.argv[2])) for name in chosen if name in CASES}))


if __name__ == "__main__":
    main()
