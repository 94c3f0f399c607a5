"""Burns CPU time in parts that are to be seen and parts that are not, using the package `strobe`; says what each took.

usage: switched.py SECONDS

Functions whose names begin with "seen" are to be in the profile of `strobe run --on-demand`, whole; no other is. Prints
{function: seconds}.
"""

import asyncio
import json
import os
import sys
import threading
import time

import strobe

SECONDS = float(sys.argv[1])
spent = {}


def burn(name, seconds=SECONDS):
    """Takes this time in a function of that name."""
    code = "def {0}(seconds, clock):\n end = clock() + seconds\n while clock() < end: sum(range(300))\n".format(name)
    functions = {}
    exec(compile(code, "switched-" + name, "exec"), functions)
    start = time.thread_time()
    functions[name](seconds, time.thread_time)
    spent[name] = spent.get(name, 0) + time.thread_time() - start


def start_and_stop():
    burn("before_start")
    strobe.start()
    assert strobe.is_profiling()
    burn("seen_started")
    strobe.stop()
    assert not strobe.is_profiling()
    burn("after_stop")


def blocks():
    with strobe.profile():
        with strobe.profile():
            burn("seen_inner")
        burn("seen_outer")
        strobe.stop()
        burn("stopped_in_block")
        with strobe.profile():
            burn("seen_again")
    burn("after_blocks")
    strobe.start()
    with strobe.profile():
        pass
    assert strobe.is_profiling()
    with strobe.profile():
        strobe.stop()
    with strobe.profile():
        strobe.start()
    assert strobe.is_profiling()
    strobe.stop()
    try:
        with strobe.profile():
            raise KeyError
    except KeyError:
        pass
    block = strobe.profile()
    with block, block:
        burn("seen_reused")
    assert not strobe.is_profiling()


class Decorated:
    @strobe.profile
    def method(self, argument, *, keyword):
        """words"""
        burn("seen_method")
        return self, argument, keyword

    @strobe.profile
    @classmethod
    def of_class(cls):
        burn("seen_class_method")
        return cls

    @staticmethod
    @strobe.profile()
    def static():
        burn("seen_static")
        raise LookupError


def decorated_functions():
    made = Decorated()
    assert made.method(1, keyword=2) == (made, 1, 2)
    assert Decorated.method.__doc__ == "words" and Decorated.method.__name__ == "method"
    assert made.of_class() is Decorated
    try:
        made.static()
    except LookupError:
        pass
    burn("after_functions")


@strobe.profile
def generate(count):
    for i in range(count):
        burn("seen_generator")
        try:
            got = yield i
        except KeyError as error:
            got = error
        if got is not None:
            yield got
    return "end"


def decorated_generators():
    steps = generate(2)
    assert next(steps) == 0
    burn("between_steps")
    assert steps.send("sent") == "sent"
    assert next(steps) == 1
    thrown = KeyError()
    assert steps.throw(thrown) is thrown
    try:
        next(steps)
    except StopIteration as stop:
        assert stop.value == "end"
    left = generate(2)
    next(left)
    left.close()
    assert not strobe.is_profiling()


@strobe.profile
async def coroutine():
    burn("seen_coroutine")
    await asyncio.gather(other_task(), other_task())
    return "done"


async def other_task():
    await asyncio.sleep(0)
    burn("seen_task", SECONDS / 2)


@strobe.profile
async def generate_async():
    try:
        for i in range(2):
            await asyncio.sleep(0)
            burn("seen_async_generator")
            yield i
    finally:
        closed.append(True)


closed = []


async def use_coroutines():
    burn("before_coroutine")
    assert asyncio.iscoroutinefunction(coroutine)
    assert await coroutine() == "done"
    burn("after_coroutine")
    got = []
    async for i in generate_async():
        burn("between_async_steps", SECONDS / 2)
        got.append(i)
    assert got == [0, 1]
    left = generate_async()
    await left.__anext__()
    await left.aclose()
    assert closed == [True, True]
    try:
        await left.athrow(KeyError())
    except (KeyError, StopAsyncIteration):
        pass
    assert not strobe.is_profiling()


def threads():
    """Two blocks that overlap: sampled from the first one's begin to the last one's end."""
    begun, ended = threading.Event(), threading.Event()

    def second():
        with strobe.profile():
            begun.set()
            ended.wait()
            burn("seen_in_thread")

    thread = threading.Thread(target=second)
    with strobe.profile():
        thread.start()
        begun.wait()
    burn("seen_while_other_block")
    ended.set()
    thread.join()
    burn("after_threads")


def fork(name):
    pid = os.fork()
    if pid == 0:
        burn(name)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    spent[name] = SECONDS


def children():
    fork("child_before")
    with strobe.profile():
        fork("seen_child_in_block")
    begun, ended = threading.Event(), threading.Event()

    def other():
        with strobe.profile():
            begun.set()
            ended.wait()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    fork("child_of_other_threads_block")
    ended.set()
    thread.join()


start_and_stop()
blocks()
decorated_functions()
decorated_generators()
asyncio.run(use_coroutines())
threads()
children()
burn("at_the_end")
print(json.dumps(spent))
