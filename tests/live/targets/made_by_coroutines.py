"""Coroutines that make objects, whose __init__ takes nearly all of the time."""

import sys


def burn(times):
    x = 0
    for i in range(times):
        x += i
    return x


class Made:
    def __init__(self, times):
        self.value = self.find(times)

    def find(self, times):
        return burn(times)


async def give(times):
    return times


async def make():
    return Made(await give(3000))


async def ask():
    return await make()


def drive():
    while True:
        try:
            ask().send(None)
        except StopIteration:
            pass


print("ready", flush=True)
sys.exit(drive())
