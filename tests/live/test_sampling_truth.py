"""Stacks sampled from a running program, held against what its source allows (stack_judge.py). Shares are held against
those that stopping the process gives."""

import json
import re
import subprocess
from collections import Counter

import pytest
from harness import SANITIZED, STROBE, TARGETS, Target, read_wait_ns
from stack_judge import SCRIPT, judge, read_source

TOOL = STROBE.parent / "tests" / "tools" / "sample_stacks"
PROGRAMS = ["plain", "generators", "passed", "delegation", "coroutines", "constructors", "exceptions", "deep"]

RATE_HZ = 5000
SECONDS = 0.6

# In parts of the samples taken. The aims are 0.00005 (0.0005 before 3.11). What is held here is what has been reached with
# room to spare: that many are those of a fraction of a second, in which most is still to be learned.
FEW = 20
IMPOSSIBLE = {True: 0.05, False: 0.005}
# Two callers in turn that run generators which they do not name, each shorter than a copy takes. Of 90 runs on a busy machine
# the worst had 0.025.
IMPOSSIBLE_PASSED = 0.1
# Before 3.11 callers are read after the pointer to the innermost frame; where they called is learned first.
MISPLACED = {True: 0.4, False: 0.01}
DROPPED = 0.1
# The aim is 0.015. Seen in some hundred runs, most on a busy machine, where a look takes as long as these programs need for a
# generator's whole life: up to 0.1 of what has its frames in chunks; of generators and coroutines 0.1, in one of ten runs
# 0.2, in one of a hundred 0.34, when what they call was learned late; where the shares are open 0.35, and up to 0.44.
SHARE = {"chunks": 0.3, "heap": 0.5, "open": 0.65}
WHOLE = {"made_by_coroutines.py": "drive;ask;make;__init__;find;burn", "bound_methods.py": "drive;step;burn"}
# 0.96 and more; one of some hundred runs had 0.88, of 250 samples: so few a virtual machine lets stop in a second.
ALL = 0.8
# Of many_tasks.py: what its coroutines call takes 0.46 to 0.82 of the samples, stopped or running, on interpreters old and
# new; what runs the coroutines 0 to 0.06, and nearly all where the coroutines are not seen.
CALLED_BY_TASKS = 0.3
RUNS_TASKS = 0.2
# Shares are those of what runs; of the time in which it was sampled the process may have waited so much to run.
MAX_WAIT = 0.1


def sample(pid, *options, rate_hz=RATE_HZ, seconds=SECONDS, prefix=()):
    command = [*prefix, TOOL, pid, rate_hz, seconds, *options]
    finished = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, timeout=60 + seconds, check=True)
    return judge(read_source(), json.loads(finished.stdout))


def sample_stacks(python, script, options):
    """The functions of each stack, outermost first, and how often it was seen in a second."""
    with Target(python, TARGETS / script) as target:
        command = [TOOL, str(target.pid), "1000", "1", *options]
        finished = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True)
    stacks = Counter()
    for key, count in json.loads(finished.stdout)["stacks"].items():
        stacks[re.sub("@[0-9:]*", "", key)] += count
    return stacks


def shorten(stacks):
    return [(count, key[-300:]) for key, count in sorted(stacks.items(), key=lambda item: -item[1])[:5]]


def learns_slowly(python, program):
    """Deep recursion before 3.11: who called whom at which depth is learned from what can be read in one go, and that is
    little on a busy machine."""
    return program == "deep" and not python.at_least(3, 11)


def how_open(python, program):
    """How well it is seen how often the innermost functions run: deep stacks are read later at their end. In free-threaded
    builds each generator is at another address, so that it is known too late where to read: those of the programs here
    live for a microsecond. And generators that are so brief and that their callers do not name (passed) are their callers'."""
    heap = program in ("generators", "delegation", "coroutines")
    if program in ("deep", "passed") or (heap and python.free_threaded):
        return "open"
    return "heap" if heap else "chunks"


@pytest.mark.parametrize("program", PROGRAMS)
def test_only_stacks_that_can_be(python, program):
    old = not python.at_least(3, 11)
    with Target(python, SCRIPT, program) as target:
        wait_ns = read_wait_ns(target.pid)
        running = sample(target.pid)
        wait_ns = read_wait_ns(target.pid) - wait_ns
        stopped = sample(target.pid, "--blocking", seconds=SECONDS / 2)
    # On a busy machine a process may take all of the time to stop once, and so deep a stack may never be seen whole.
    assert program == "deep" or running.total > 0
    assert not stopped.impossible, shorten(stopped.impossible)
    assert not stopped.misplaced, shorten(stopped.misplaced)
    if learns_slowly(python, program):
        return
    impossible = IMPOSSIBLE_PASSED if program == "passed" else IMPOSSIBLE[old]
    assert sum(running.impossible.values()) <= max(FEW, impossible * running.total), shorten(running.impossible)
    assert sum(running.misplaced.values()) <= max(FEW, MISPLACED[old] * running.total), shorten(running.misplaced)
    assert running.dropped_share <= DROPPED, running.counters
    if min(running.total, stopped.total) > 500 and wait_ns < MAX_WAIT * SECONDS * 1e9:
        names = set(running.shares) | set(stopped.shares)
        off = {name: running.shares.get(name, 0) - stopped.shares.get(name, 0) for name in names}
        assert all(abs(share) <= SHARE[how_open(python, program)] for share in off.values()), off


@pytest.mark.parametrize("option", [[], ["--blocking"]], ids=["running", "stopped"])
@pytest.mark.parametrize("script", WHOLE)
def test_what_takes_all_of_the_time_is_seen(python, script, option):
    """From 3.13 on the interpreter puts a frame of its own between a coroutine and the __init__ of what that makes; and
    leaves no trace in the caller's frame of which function a bound method is that it has called."""
    stacks = sample_stacks(python, script, option)
    whole = sum(count for names, count in stacks.items() if names.endswith(WHOLE[script]))
    assert sum(stacks.values()) > 0 and whole >= ALL * sum(stacks.values()), shorten(stacks)


@pytest.mark.parametrize("option", [[], ["--blocking"]], ids=["running", "stopped"])
def test_what_many_tasks_call_is_seen(python, option):
    """Long chains of coroutines, each at another address than the last: all of them take longer to be read than they last."""
    stacks = sample_stacks(python, "many_tasks.py", option)
    steps = "ask;" + "".join("step%d;" % depth for depth in reversed(range(14)))
    total = sum(stacks.values())
    assert total > 0
    if SANITIZED and not option:
        return  # To it all of these coroutines are too brief.
    assert sum(count for names, count in stacks.items() if names.endswith(steps + "burn")) > CALLED_BY_TASKS * total, shorten(stacks)
    assert sum(count for names, count in stacks.items() if names.endswith(";_run")) < RUNS_TASKS * total, shorten(stacks)
