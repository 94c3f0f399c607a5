"""Functions of all kinds, each in a block while it runs. What a wrapped one is asked about itself, it answers as before."""

import functools
import inspect


def wrap(switch, function):
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(wrap(switch, function.__func__))
    for is_kind, wrap_kind in (
        (inspect.iscoroutinefunction, _wrap_coroutine),
        (inspect.isasyncgenfunction, _wrap_async_generator),
        (inspect.isgeneratorfunction, _wrap_generator),
    ):
        if is_kind(function):
            return functools.wraps(function)(wrap_kind(switch, function))
    return functools.wraps(function)(_wrap_function(switch, function))


def _wrap_function(switch, function):
    def profiled(*args, **kwargs):
        with switch.block():
            return function(*args, **kwargs)

    return profiled


def _wrap_coroutine(switch, function):
    async def profiled(*args, **kwargs):
        with switch.block():
            return await function(*args, **kwargs)

    return profiled


def _wrap_generator(switch, function):
    def profiled(*args, **kwargs):
        generator = function(*args, **kwargs)
        step, argument = generator.send, None
        while True:
            try:
                with switch.block():
                    value = step(argument)
            except StopIteration as stop:
                return stop.value
            finally:
                step = argument = None  # an exception in it would hold on to this frame
            try:
                step, argument = generator.send, (yield value)
            except BaseException as thrown:  # GeneratorExit too: what closes this one closes that one
                step, argument = generator.throw, thrown

    return profiled


def _wrap_async_generator(switch, function):
    async def profiled(*args, **kwargs):
        generator = function(*args, **kwargs)
        step, argument = generator.asend, None
        while True:
            try:
                with switch.block():
                    value = await step(argument)
            except StopAsyncIteration:
                return
            finally:
                step = argument = None  # an exception in it would hold on to this frame
            try:
                step, argument = generator.asend, (yield value)
            except BaseException as thrown:
                step, argument = generator.athrow, thrown

    return profiled
