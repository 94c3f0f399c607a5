"""Calls, without end, functions of two kinds by turns: what belongs to the one is never on the stack with the other.

Argument: which of the programs below. A line that ends in '# -> f, g' is the only one of its function where a frame of
f or g can stand above it; test_sampling_truth reads these marks.
"""

import sys

DEPTH = 150
ROUNDS = 20


def work1():
    x = 0
    for i in range(3):
        x += i
    return x


def work2():
    x = 0
    for i in range(3):
        x += i
    return x


def inner1():
    return work1() + 1  # -> work1


def inner2():
    return work2() + 1  # -> work2


def outer1():
    return inner1() + 1  # -> inner1


def outer2():
    return inner2() + 1  # -> inner2


def plain():
    while True:
        outer1()  # -> outer1
        outer2()  # -> outer2


def values1():
    for i in range(5):
        yield i + work1()  # -> work1


def values2():
    for i in range(5):
        yield i + work2()  # -> work2


def sum1():
    total = 0
    for value in values1():  # -> values1
        total += value
    return total


def sum2():
    return sum(values2())  # -> values2


def generators():
    while True:
        sum1()  # -> sum1
        sum2()  # -> sum2


def consume1(values):
    for value in values:  # -> values1
        pass


def consume2(values):
    for value in values:  # -> values2
        pass


def passed():
    while True:
        consume1(values1())  # -> consume1
        consume2(values2())  # -> consume2


def delegate1():
    yield from values1()  # -> values1
    return 1


def delegate2():
    yield from values2()  # -> values2
    return 1


def drain1():
    for value in delegate1():  # -> delegate1
        pass


def drain2():
    for value in delegate2():  # -> delegate2
        pass


def delegation():
    while True:
        drain1()  # -> drain1
        drain2()  # -> drain2


class Pause:
    def __await__(self):
        yield 1


async def step1():
    work1()  # -> work1
    await Pause()  # -> Pause.__await__


async def step2():
    work2()  # -> work2
    await Pause()  # -> Pause.__await__


async def task1():
    await step1()  # -> step1
    await step1()  # -> step1


async def task2():
    await step2()  # -> step2
    await step2()  # -> step2


def drive1():
    task = task1()
    try:
        while True:
            task.send(None)  # -> task1
    except StopIteration:
        pass


def drive2():
    task = task2()
    try:
        while True:
            task.send(None)  # -> task2
    except StopIteration:
        pass


def coroutines():
    while True:
        drive1()  # -> drive1
        drive2()  # -> drive2


class Thing1:
    def __init__(self, value):
        self.value = value + work1()  # -> work1


class Thing2:
    def __init__(self, value):
        self.value = value + work2()  # -> work2


def make1():
    return Thing1(1)  # -> Thing1.__init__


def make2():
    return Thing2(2)  # -> Thing2.__init__


def constructors():
    while True:
        make1()  # -> make1
        make2()  # -> make2


def fail1():
    work1()  # -> work1
    raise ValueError(1)


def fail2():
    work2()  # -> work2
    raise ValueError(2)


def pass_on1():
    try:
        fail1()  # -> fail1
    finally:
        work1()  # -> work1


def pass_on2():
    try:
        fail2()  # -> fail2
    finally:
        work2()  # -> work2


def catch1():
    try:
        pass_on1()  # -> pass_on1
    except ValueError:
        pass


def catch2():
    try:
        pass_on2()  # -> pass_on2
    except ValueError:
        pass


def exceptions():
    while True:
        catch1()  # -> catch1
        catch2()  # -> catch2


def down1(depth):
    if depth > 1:
        down1(depth - 1)  # -> down1
        return
    for _ in range(ROUNDS):
        inner1()  # -> inner1
        inner2()  # -> inner2


def down2(depth):
    if depth > 1:
        down2(depth - 1)  # -> down2
        return
    for _ in range(ROUNDS):
        inner1()  # -> inner1
        inner2()  # -> inner2


def deep():
    while True:
        down1(DEPTH)  # -> down1
        down2(DEPTH)  # -> down2


def main():
    program = globals()[sys.argv[1]]
    print("ready", flush=True)
    program()  # -> plain, generators, passed, delegation, coroutines, constructors, exceptions, deep


main()  # -> main
