"""`strobe run`: no stack that cannot have been, of programs that call functions of two kinds by turns (stack_judge.py).

In a moment of each program there are some thousands of samples. A million, by hand:
STACKS_SECONDS=20 pytest test_run_stacks.py"""

import ast
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from harness import NO_PERMISSION, strobe
from stack_judge import SCRIPT, judge, read_source

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import capture_reader  # noqa: E402

SECONDS = float(os.environ.get("STACKS_SECONDS") or 0.1)
PROGRAMS = ["plain", "generators", "delegation", "coroutines", "constructors", "exceptions", "deep"]
PYTHON_FRAME, NATIVE_FRAME = 0, 1
# Their bodies run once, while it starts.
CLASSES = {node.name for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.ClassDef)}
# The program ends when it has used so much CPU time, once it has begun.
LIMITED = """
import signal, sys
_, seconds, *sys.argv = sys.argv
with open(sys.argv[0]) as file:
    code = compile(file.read(), sys.argv[0], "exec")
signal.setitimer(signal.ITIMER_PROF, float(seconds))
exec(code, {"__name__": "__main__"})
"""


@pytest.fixture(scope="module")
def clock():
    """Where there can be more looks than ticks, there are."""
    asked = ["--clock", "perf", "-r", "10000"]
    refused = strobe("run", *asked, "--no-capture", "--quiet", "--", "true").returncode == NO_PERMISSION
    return [] if refused else asked


def key_of(stack):
    return ";".join(f"{frame['function'].rpartition('.')[2]}@{frame['first_line']}:{frame['position'][0]}" for frame in stack)


def stacks_of(path):
    """{what stack_judge takes: samples} of what the program's own code does."""
    stacks = Counter()
    for record in capture_reader.Capture(path.read_bytes()).records():
        stack = [frame for frame in record.get("stack", []) if frame["kind"] != NATIVE_FRAME]
        # While it starts, there is none of it. The outermost frame is that of what starts it.
        if record["record"] == "sample" and any(frame.get("file") == str(SCRIPT) for frame in stack):
            assert stack.pop(0)["file"] == "<string>", stack
            assert all(frame["kind"] == PYTHON_FRAME for frame in stack), stack
            if not any(frame["function"] in CLASSES for frame in stack):
                stacks[key_of(stack)] += 1
    return stacks


@pytest.mark.timeout(60 + 70 * SECONDS)
def test_only_stacks_that_can_be(python, tmp_path, clock):
    capture, source, total = tmp_path / "c.strobe", read_source(), 0
    for program in PROGRAMS:
        command = [python.path, "-c", LIMITED, SECONDS, SCRIPT, program]
        options = [*clock, "--cpu-only", "--quiet", "--capture", capture]
        result = strobe("run", *options, "--", *command, timeout=60 + 10 * SECONDS)
        assert result.returncode == 128 + signal.SIGPROF, result
        stacks = stacks_of(capture)
        verdict = judge(source, {"stacks": stacks})
        assert not verdict.impossible and not verdict.misplaced, (program, verdict.impossible, verdict.misplaced)
        print(program, verdict.total)
        total += verdict.total
    # Of the ticks of a tenth of a second each, at the least.
    assert total > 20
