"""Processes that begin, end and die while strobe looks: one of the promised answers each time, in bounded time."""

import os
import re
import signal
import subprocess
import time

import harness
import pytest
from harness import Target, assert_same_threads, dump, strobe

# strobe's clear words for a process that is not (yet, any more) Python.
ONE_LINE = re.compile(r"strobe: [^\n]+\n")


def is_text(value):
    """Names are never garbage that only looks like one: what these programs have is printable."""
    return isinstance(value, str) and value != "" and value.isprintable()


def assert_promised(result, allowed):
    """A picture that makes sense, or a refusal in one line."""
    if result.returncode == harness.OK:
        document = result.json()
        for thread in document["threads"]:
            for frame in thread["frames"]:
                assert "error" in frame or is_text(frame["file"]) and is_text(frame["function"]), frame
        return "dumped" if any(thread["frames"] for thread in document["threads"]) else "empty"
    assert result.returncode in allowed, result
    assert ONE_LINE.fullmatch(result.stderr), result
    assert result.stdout == ""
    return result.returncode


def test_starting_up(python):
    """From before the exec until the program's first line: its frames are its own or importlib's."""
    answers = []
    for number in range(12):
        reads, writes = os.pipe()
        starting = subprocess.Popen(
            [python.path, "-c", f"import os, json, decimal; os.write({writes}, b'x'); os.read(0, 1)"],
            stdin=subprocess.PIPE,
            pass_fds=[writes],
        )
        os.close(writes)
        os.set_blocking(reads, False)
        options = [["--json"], ["--json", "--locals"], ["--json", "--blocking"]][number % 3]
        try:
            while True:
                result = strobe("dump", *options, starting.pid)
                # 1: not all of it is mapped yet, 5: not Python yet.
                answers.append(assert_promised(result, {harness.FAILED, harness.NOT_PYTHON}))
                try:
                    if os.read(reads, 1):
                        break
                except BlockingIOError:
                    continue
            # Now it is there for certain.
            assert assert_promised(strobe("dump", *options, starting.pid), set()) == "dumped"
        finally:
            starting.kill()
            starting.wait()
            starting.stdin.close()
            os.close(reads)
    assert answers


def test_shutting_down(python):
    """Until the process is gone; the last answer is that it is gone."""
    for options in (["--json"], ["--json", "--locals"], ["--json", "--blocking"]) * 2:
        with Target(python, "shutting_down.py") as target:
            target.send()
            deadline_s = time.monotonic() + harness.TIMEOUT_S
            while assert_promised(strobe("dump", *options, target.pid), {harness.NO_PROCESS}) != harness.NO_PROCESS:
                assert time.monotonic() < deadline_s
            # Older versions crash at times when daemon threads run while they end, looked at or not.
            assert target.process.wait() in (0, -signal.SIGSEGV)


def test_killed_during_the_look(python):
    """At instants all over the look."""
    for number in range(12):
        options = [["--json"], ["--json", "--locals"], ["--json", "--blocking"]][number % 3]
        with Target(python, "functions.py") as target:
            looking = subprocess.Popen(
                [harness.STROBE, "dump", *options, str(target.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            for _ in range(number * 10):
                os.sched_yield()
            os.kill(target.pid, signal.SIGKILL)
            output, errors = looking.communicate(timeout=harness.TIMEOUT_S)
            result = harness.Result(looking.returncode, output.decode(), errors.decode())
            assert_promised(result, {harness.NO_PROCESS})
            # Killed, and by nothing else: strobe did not swallow it.
            assert target.process.wait() == -signal.SIGKILL


def test_a_process_that_becomes_another(any_python):
    """exec: the same process id, another program."""
    for _ in range(5):
        code = "import os, sys; print('ready', flush=True); sys.stdin.readline(); os.execv('/bin/sleep', ['sleep', '1000'])"
        script = harness.TARGETS / "ready.py"
        with Target(any_python, script, options=["-c", code]) as target:
            target.send()
            deadline_s = time.monotonic() + harness.TIMEOUT_S
            # At last it is no Python any more.
            allowed = {harness.FAILED, harness.NOT_PYTHON}
            while assert_promised(strobe("dump", "--json", target.pid), allowed) != harness.NOT_PYTHON:
                assert time.monotonic() < deadline_s


def test_a_thousand_threads(python, record_property):
    with Target(python, "thousand.py", 1000) as target:
        told = target.said["threads"]
        if len(told) < 1001:
            pytest.skip(f"the system allows {len(told)} threads only")
        began_s = time.monotonic()
        dumped = dump(target)
        record_property("seconds", time.monotonic() - began_s)
        blocked = dump(target, "--blocking")
    assert_same_threads(python, told, dumped)
    assert_same_threads(python, told, blocked)
