"""Tasks in turn, each of which has coroutines await one another, new ones each time, which call this and that in between.
What the innermost calls takes most of the time: some tens of microseconds."""

import asyncio
import sys

TASKS = 20
DEPTH = 14
STEP = """
async def step{0}(scope, receive, send):
    inner, got = Request({0}, scope), {{}}
    async def send_on(message):
        got.update(message)
        await send(message)
    inner.check()
    await steps[{0} - 1](inner.scope, receive, send_on)
    return inner.check()
"""


class Request:
    def __init__(self, depth, scope):
        self.depth = depth
        self.scope = dict(scope, depth=self.note(depth))

    def note(self, depth):
        return [depth]

    def check(self):
        return [key for key in self.scope if key != "depth"]


def burn(times):
    x = 0
    for i in range(times):
        x += i
    return x


async def step0(scope, receive, send):
    await asyncio.sleep(0)
    await send({"sum": burn(1500)})


steps = [step0]
for depth in range(1, DEPTH):
    exec(STEP.format(depth))
    steps.append(globals()["step%d" % depth])


async def ask():
    async def receive():
        return {}

    async def send(message):
        assert message

    while True:
        await steps[-1]({"path": "/"}, receive, send)


async def main():
    await asyncio.gather(*[ask() for _ in range(TASKS)])


print("ready", flush=True)
sys.exit(asyncio.run(main()))
