# -*- coding: utf-8 -*-
"""Stops inside generators, coroutines and asynchronous generators, nested in every way."""

import functools
import sys
import types

import truth


def generator(call):
    try:
        yield 1
        yield (
            call()
        )
    finally:
        pass


def delegating(call, depth):
    if depth == 0:
        yield from generator(call)
    else:
        yield from delegating(call, depth - 1)


def chain_of_yield_from(call):
    for _ in delegating(call, 200):
        pass


def looping(call, depth):
    """Each runs the next from its own frame: no `yield from`, as many frames."""
    if depth == 0:
        call()
    else:
        for item in looping(call, depth - 1):
            yield item
    yield


def nested_loops(call):
    next(looping(call, 100))


def expressions(call):
    def nest(depth):
        if depth == 0:
            return (call() for _ in "a")
        return (value for value in nest(depth - 1))

    return list(nest(50))


def sent_to(call):
    def echo():
        while True:
            received = yield
            received()

    made = echo()
    next(made)
    made.send(call)


def thrown_into(call):
    def catching():
        try:
            yield
        except ValueError:
            yield call()

    def outer():
        yield from catching()

    made = outer()
    next(made)
    made.throw(ValueError())


def closed(call):
    def inner():
        try:
            yield
        finally:
            call()

    def outer():
        yield from inner()

    made = outer()
    next(made)
    made.close()


def collected(call):
    """Dropped while suspended: its finally runs from the deallocation."""

    def inner():
        try:
            yield
        finally:
            call()

    made = inner()
    next(made)
    del made


def run(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value


@types.coroutine
def suspend():
    yield


async def leaf(call):
    await suspend()
    return call()


async def awaiting(call, depth):
    await suspend()
    if depth == 0:
        return await leaf(call)
    return await awaiting(call, depth - 1)


def awaited(call):
    run(awaiting(call, 100))


class Awaitable:
    def __init__(self, call):
        self.call = call

    def __await__(self):
        yield from suspend()
        return self.call()


def custom_awaitable(call):
    async def main():
        return await Awaitable(call)

    run(main())


async def numbers(call):
    yield 1
    await suspend()
    yield call()


async def relay(call, depth):
    if depth == 0:
        async for item in numbers(call):
            yield item
    else:
        async for item in relay(call, depth - 1):
            yield item


def asynchronous_generators(call):
    async def main():
        return [item async for item in relay(call, 30)]

    run(main())


def asynchronous_manager(call):
    class Manager:
        async def __aenter__(self):
            await suspend()

        async def __aexit__(self, *reason):
            await leaf(call)

    async def main():
        async with Manager():
            await suspend()

    run(main())


def closed_asynchronous_generator(call):
    async def items():
        try:
            yield 1
        finally:
            await leaf(call)

    async def main():
        made = items()
        await made.__anext__()
        await made.aclose()

    run(main())


def asynchronous_expression(call):
    async def main():
        return [value async for value in (await leaf(call) for _ in "ab")]

    run(main())


def mixed(call):
    """A coroutine driven by a generator driven by a coroutine."""

    def generator():
        yield run(leaf(call))

    async def main():
        return list(generator())

    run(main())


CHAIN = [
    chain_of_yield_from, nested_loops, expressions, sent_to, thrown_into, closed, collected, awaited, custom_awaitable,
    asynchronous_generators, asynchronous_manager, closed_asynchronous_generator, asynchronous_expression, mixed,
]


def run_all(stop):
    call = stop
    for function in reversed(CHAIN):
        call = functools.partial(function, call)
    call()


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    run_all(truth.main_stop())
