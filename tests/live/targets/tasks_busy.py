"""An event loop in which tasks are born, await each other and end, as fast as it can."""

import asyncio


async def leaf():
    await asyncio.sleep(0)


async def child(number):
    for _ in range(number % 4):
        await leaf()


async def parent():
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(child(number))


async def main():
    print("ready", flush=True)
    while True:
        await asyncio.gather(*(parent() for _ in range(4)))


asyncio.run(main())
