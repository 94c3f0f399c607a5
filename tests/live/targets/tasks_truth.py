"""What asyncio says of its tasks, recorded where no task moves any more. For 3.14 and later."""

import asyncio
import gc
import inspect
import sys
import threading
import truth

DRIVERS = {"async_generator_asend", "async_generator_athrow", "coroutine_wrapper", "anext_awaitable"}

told = []


def chain_of(coro):
    """The frames from a task's coroutine to the last one that has a frame, innermost first. As
    asyncio.capture_call_graph(), but through generators and async generators too."""
    frames = []
    while coro is not None:
        for prefix, awaited in (("cr", "await"), ("ag", "await"), ("gi", "yieldfrom")):
            if hasattr(coro, f"{prefix}_frame"):
                frames.append(getattr(coro, f"{prefix}_frame"))
                coro = getattr(coro, f"{prefix}_{awaited}")
                break
        else:
            if type(coro).__name__ not in DRIVERS:
                break
            # Nothing in Python tells what these drive; the garbage collector does, the driven one first.
            coro = gc.get_referents(coro)[0]
    frames.reverse()
    return frames


def awaiting_tasks(task):
    """The ids of the tasks that await one; through futures, of those that await them."""
    found, seen, left = set(), set(), list(task._asyncio_awaited_by or ())
    while left:
        awaiter = left.pop()
        if isinstance(awaiter, asyncio.Task):
            found.add(id(awaiter))
        elif awaiter not in seen:
            seen.add(awaiter)
            left += awaiter._asyncio_awaited_by or ()
    return found


def captured(task):
    """The frames that asyncio gives; None when it cannot, since tasks await each other in a ring."""
    try:
        return [entry.frame for entry in asyncio.capture_call_graph(task, depth=3).call_stack]
    except RecursionError:
        return None


def state_of(task):
    if inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_CREATED:
        return "created"
    return "running" if inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_RUNNING else "awaiting"


def running_frames(task, frame, tasks):
    """What the thread runs on a running task's behalf: from its coroutine's frame inwards, up to the coroutine of a task
    that was started eagerly by it."""
    begins = {other.get_coro().cr_frame: other for other in tasks}
    frames = []
    while begins.get(frame) is not task:
        frames.append(frame)
        if frame in begins:
            frames.clear()
        frame = frame.f_back
    return [*frames, frame]


def frames_of(task, frame, outer, tasks):
    """The frames of a task when `frame` is the thread's innermost, held against `outer`, what asyncio captured."""
    frames = chain_of(task.get_coro())
    if state_of(task) != "running":
        assert outer is None or frames[len(frames) - len(outer) :] == outer
        return frames
    frames = running_frames(task, frame, tasks)
    if task is asyncio.current_task(task.get_loop()):
        assert frames == outer
    return frames


def record():
    """Records all tasks of the running loop, as the caller of a C function that calls this sees them."""
    tasks = asyncio.all_tasks(asyncio.get_running_loop())
    for task in tasks:
        outer = captured(task)
        told.append(
            {
                "task_id": id(task),
                "name": task.get_name(),
                "thread_id": threading.get_ident(),
                "state": state_of(task),
                "frames": [truth.describe(f) for f in frames_of(task, sys._getframe(1), outer, tasks)],
                "awaited_by": sorted(awaiting_tasks(task)),
            }
        )


def main_stop():
    """What the main thread calls to stop for good and tell."""
    truth.extra["tasks"] = told
    return truth.chain(record, truth.main_stop())


def when_settled(stop):
    """Calls stop() from the event loop, in no task, as soon as nothing is left to do."""
    loop = asyncio.get_running_loop()
    if loop._ready:
        loop.call_soon(when_settled, stop)
    else:
        stop()


async def forever():
    await asyncio.get_running_loop().create_future()
