"""A program of which most mixtures are lies: alternating.py KIND DEPTH

Under DEPTH frames it calls by turns a1, which calls b1, which calls c1, and a2, b2, c2; never one of the other's. KIND is
how: `calls` (plain functions), `generators` (b is a generator), `constructors` (b is the __init__ of a class), `base`
(the frames below change too: two chains of DEPTH functions, p and q, by turns; p ends in a1 and q in a2).
Prints "ready" and runs until it is killed.
"""

import sys


def c1():
    x = 0
    for i in range(3):
        x += i
    return x


def c2():
    x = 0
    for i in range(3):
        x += i
    return x


def calls():
    def b1():
        return c1() + 1

    def b2():
        return c2() + 1

    return b1, b2


def generators():
    def b1():
        yield c1()
        yield c1() + 1

    def b2():
        yield c2()
        yield c2() + 1

    def consume(make):
        def a():
            total = 0
            for value in make():
                total += value
            return total

        return a

    return consume(b1), consume(b2)


def constructors():
    class B1:
        def __init__(self):
            self.x = c1()

    class B2:
        def __init__(self):
            self.x = c2()

    return B1, B2


# The functions' own names in profiles, whatever made them.
def name(function, as_name):
    code = function.__code__.replace(co_name=as_name)
    if hasattr(code, "co_qualname"):
        code = code.replace(co_qualname=as_name)
    function.__code__ = code
    return function


def make_pair(kind):
    """(a1, a2)"""
    b1, b2 = {"calls": calls, "generators": generators, "constructors": constructors, "base": calls}[kind]()
    if kind == "constructors":
        name(B_init(b1), "b1")
        name(B_init(b2), "b2")
    elif kind == "generators":
        return name(b1, "a1"), name(b2, "a2")

    def a1():
        b1()
        return 1

    def a2():
        b2()
        return 1

    return a1, a2


def B_init(made):
    return made.__init__


def make_chain(letter, depth, leaf):
    """depth functions of their own, each calling the next, the last the leaf."""
    lines = [f"def {letter}{i}():\n    {letter}{i + 1}()\n" for i in range(depth)]
    scope = {f"{letter}{depth}": leaf}
    exec("\n".join(lines), scope)  # noqa: S102
    return scope[f"{letter}0"]


kind, depth = sys.argv[1], int(sys.argv[2])
first, second = make_pair(kind)


def alternate():
    while True:
        first()
        second()


if kind == "base":
    p, q = make_chain("p", depth, first), make_chain("q", depth, second)
    print("ready", flush=True)
    while True:
        for _ in range(200):
            p()
        for _ in range(200):
            q()
else:
    base = make_chain("base", max(0, depth), alternate)
    print("ready", flush=True)
    base()
