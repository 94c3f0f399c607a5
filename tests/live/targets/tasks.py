# -*- coding: utf-8 -*-
"""Tasks of asyncio in the state that the first argument names. For 3.14 and later."""

import asyncio
import inspect
import sys
import threading
import types

from tasks_truth import forever, main_stop, record, told, when_settled

import truth


async def nested(depth, leaf):
    if depth == 0:
        return await leaf()
    return await nested(
        depth - 1,
        leaf,
    )


async def settle(*awaitables):
    """Awaits them all, and has the loop stop for good as soon as nothing is left to do."""
    asyncio.get_running_loop().call_soon(when_settled, main_stop())
    return await asyncio.gather(*awaitables)


async def gather():
    await settle(nested(3, forever), nested(0, forever), asyncio.gather(nested(1, forever), forever()))


async def task_group():
    async with asyncio.TaskGroup() as outer:
        outer.create_task(nested(1, forever), name="inner")
        outer.create_task(nested(2, forever), name="Größe 線程 🧵")
        outer.create_task(settle(forever()), name="settling")
        async with asyncio.TaskGroup() as inner:
            inner.create_task(forever())


async def shield():
    inner = asyncio.create_task(nested(2, forever), name="shielded")

    async def protect():
        await asyncio.shield(inner)

    await settle(protect(), asyncio.wait_for(protect(), 1000), asyncio.wait([inner]))


async def many_awaiters():
    """A task that several await, a future that several await, and a name that is a number."""
    shared = asyncio.create_task(nested(1, forever), name=1234567890123)
    future = asyncio.get_running_loop().create_future()

    async def await_it(what):
        return await what

    awaiting = [await_it(shared) for _ in range(20)] + [await_it(future) for _ in range(3)]
    await settle(*awaiting)


async def ring():
    """Three that wait for each other."""
    tasks = []

    async def await_next(index):
        await tasks[(index + 1) % 3]

    tasks += [asyncio.create_task(await_next(index), name=f"ring {index}") for index in range(3)]
    await settle(forever())


class Awaitable:
    def __init__(self, how):
        self.how = how

    def __await__(self):
        if self.how == "generator":
            return (yield from forever().__await__())
        return nested(1, forever).__await__()


async def produce():
    try:
        yield 1
        await nested(1, forever)
        yield 2
    finally:
        await forever()


@types.coroutine
def generator_based():
    yield from forever().__await__()


async def generators():
    async def loop_over():
        async for _ in produce():
            pass

    async def next_of(*default):
        producer = produce()
        await anext(producer, *default)
        await anext(producer, *default)

    async def close():
        producer = produce()
        await anext(producer)
        await producer.aclose()

    async def comprehend():
        return [value async for value in produce() if value]

    async def wait(awaitable):
        await awaitable

    awaitables = [Awaitable("generator"), Awaitable("coroutine"), generator_based()]
    await settle(
        loop_over(), next_of(), next_of(None), close(), comprehend(), *(wait(awaitable) for awaitable in awaitables)
    )


async def not_begun():
    """The stop comes in the very step that creates the task."""
    tasks = [asyncio.create_task(nested(1, forever), name=f"new {index}") for index in range(3)]
    main_stop()()
    await asyncio.wait(tasks)


async def running():
    """A task that blocks its loop, below coroutines, generators and C code."""

    def block():
        return max([1, 2], key=lambda _: main_stop()())

    def generate():
        yield block()

    async def call():
        return [value for value in generate()]

    async def work():
        await nested(2, call)

    await asyncio.gather(asyncio.create_task(forever()), asyncio.create_task(work(), name="busy"))


async def eager():
    """Tasks that begin inside the step of another, the last of which blocks."""

    def block():
        main_stop()()

    async def innermost():
        block()

    async def middle():
        await asyncio.create_task(nested(1, innermost), eager_start=True, name="innermost")

    waiting = asyncio.create_task(nested(1, forever), eager_start=True, name="suspended")
    await asyncio.create_task(nested(2, middle), eager_start=True, name="middle")
    await waiting


async def thousand():
    await settle(*(nested(index % 5, forever) for index in range(1000)))


def threads():
    """An event loop in each of several threads; one of them has ended and left a task."""
    others = truth.Threads()

    async def work(depth):
        loop = asyncio.get_running_loop()
        loop.call_soon(when_settled, truth.chain(record, others.stop()))
        await asyncio.gather(*(nested(depth, forever) for _ in range(depth)))

    for depth in (1, 3):
        others.start(lambda: asyncio.run(work(depth)), name=f"loop {depth}")
    asyncio.run(gather())


def orphans():
    """Tasks of a thread that has ended, their loop never closed."""
    left = []

    def work():
        loop = asyncio.new_event_loop()
        left.append((loop, loop.create_task(nested(1, forever), name="orphan")))
        loop.call_soon(when_settled, loop.stop)
        loop.run_forever()
        asyncio._set_running_loop(loop)
        record()
        asyncio._set_running_loop(None)
        told[-1]["thread_id"] = None

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    asyncio.run(gather())


def no_tasks():
    loop = asyncio.new_event_loop()
    loop.call_soon(main_stop())
    loop.run_forever()


if __name__ == "__main__":
    scenario = globals()[sys.argv[1]]
    if inspect.iscoroutinefunction(scenario):
        asyncio.run(scenario())
    else:
        scenario()
