"""Tasks for the images of 3.14 and later: each state a task can be in, and each thing that one can await."""

import asyncio
import types

import tasks_truth
from tasks_truth import forever

import truth


async def nested(depth):
    return await (nested(depth - 1) if depth else forever())


async def iterate():
    async for _ in generate():
        pass


async def generate():
    await nested(1)
    yield


@types.coroutine
def relay():
    return (yield from forever().__await__())


async def wait_for(awaitable):
    return await awaitable


async def program(stop):
    shared = asyncio.create_task(nested(2), name="Größe")
    future = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        for awaitable in (shared, shared, shared, future, future, iterate(), relay()):
            group.create_task(wait_for(awaitable))
        group.create_task(wait_for(asyncio.gather(nested(0), nested(1))), name="gathering")
        for _ in range(3):
            await asyncio.sleep(0)
        group.create_task(nested(0), name="not begun")
        truth.chain(tasks_truth.record, stop)()


def start(stop):
    truth.extra["tasks"] = tasks_truth.told
    asyncio.new_event_loop().run_until_complete(program(stop))
