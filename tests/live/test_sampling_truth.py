"""Stacks sampled from a running program, held against what its source allows.

targets/alternating.py says with its marks which function can call which, and on which line. A stack with another pair
of neighbours, or with another line, never was. Shares are held against those that stopping the process gives.
"""

import ast
import json
import re
import subprocess
from dataclasses import dataclass, field

import pytest
from harness import STROBE, TARGETS, Target

TOOL = STROBE.parent / "tests" / "tools" / "sample_stacks"
SCRIPT = TARGETS / "alternating.py"
PROGRAMS = ["plain", "generators", "delegation", "coroutines", "constructors", "exceptions", "deep"]
DEPTH = 150

RATE_HZ = 5000
SECONDS = 0.6

# In parts of the samples taken. The aims are 0.00005 (0.0005 before 3.11). What is held here is what has been reached with
# room to spare: up to 0.003 were seen on a quiet machine.
FEW = 20
IMPOSSIBLE = {True: 0.05, False: 0.02}
# Before 3.11 callers are read after the pointer to the innermost frame; where they called is learned first.
MISPLACED = {True: 0.4, False: 0.03}
DROPPED = 0.1
# The aim is 0.015. Up to 0.2 was seen on a quiet machine (3.13, the innermost functions); the cause is not known yet.
SHARE = 0.35


@dataclass
class Source:
    names: dict = field(default_factory=dict)  # first line → name
    calls: dict = field(default_factory=dict)  # (caller, callee) → lines


def read_source():
    text = SCRIPT.read_text()
    source = Source({1: "<module>", 0: "<module>"})
    spans = {}

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                source.names[child.lineno] = prefix + child.name
                spans.update(dict.fromkeys(range(child.lineno, child.end_lineno + 1), prefix + child.name))
            visit(child, prefix + child.name + "." if isinstance(child, ast.ClassDef) else prefix)

    visit(ast.parse(text), "")
    for number, line in enumerate(text.splitlines(), 1):
        if mark := re.search(r"# -> (.*)", line):
            for callee in mark[1].split(", "):
                source.calls.setdefault((spans.get(number, "<module>"), callee), set()).add(number)
    return source


@dataclass
class Verdict:
    total: int = 0
    impossible: dict = field(default_factory=dict)
    misplaced: dict = field(default_factory=dict)
    shares: dict = field(default_factory=dict)  # of the innermost functions
    counters: dict = field(default_factory=dict)

    @property
    def impossible_share(self):
        return sum(self.impossible.values()) / max(1, self.total)

    @property
    def misplaced_share(self):
        return sum(self.misplaced.values()) / max(1, self.total)

    @property
    def dropped_share(self):
        dropped = self.counters["inconsistent"] + self.counters["errors"]
        return dropped / max(1, dropped + self.counters["taken"])


def judge(source, sampled):
    """Which of the stacks cannot have been."""
    verdict = Verdict(counters=sampled)
    plain_names = {name.rpartition(".")[2] for name in source.names.values()}
    for key, count in sampled["stacks"].items():
        frames = re.findall(r"([^;@]+)@(\d+):(\d+)", key)
        # Before 3.13 __await__ has its name only; nothing else has two functions on one line.
        stack = [(source.names.get(int(first), name), int(line)) for name, first, line in frames]
        names = [name for name, _ in stack]
        pairs = list(zip(stack, stack[1:]))
        verdict.total += count
        assert all(name in plain_names or name == "<module>" for name, _, _ in frames), key
        deep = [name for name in names if name in ("down1", "down2")]
        on_leaf = names and names[-1] in ("inner1", "inner2", "work1", "work2") and deep
        if (
            not names
            or names[0] != "<module>"
            or any((a, b) not in source.calls for (a, _), (b, _) in pairs)
            or len(deep) > DEPTH
            or (on_leaf and len(deep) != DEPTH)
        ):
            verdict.impossible[key] = count
        elif any(line not in source.calls[a, b] for (a, line), (b, _) in pairs):
            verdict.misplaced[key] = count
        leaf = names[-1] if names else ""
        verdict.shares[leaf] = verdict.shares.get(leaf, 0) + count
    verdict.shares = {name: count / verdict.total for name, count in verdict.shares.items()}
    return verdict


def sample(pid, *options, rate_hz=RATE_HZ, seconds=SECONDS, prefix=()):
    command = [*prefix, TOOL, pid, rate_hz, seconds, *options]
    finished = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, timeout=60 + seconds, check=True)
    return judge(read_source(), json.loads(finished.stdout))


def shorten(stacks):
    return [(count, key[-300:]) for key, count in sorted(stacks.items(), key=lambda item: -item[1])[:5]]


def is_open(python, program):
    """Where running programs are not yet seen well enough: generators on the heap, and stacks that are deeper than can
    be read before they are others. What stopping gives must be right there, too."""
    if not python.at_least(3, 11):
        return program in ("deep", "coroutines", "exceptions")
    return program in ("deep", "generators", "delegation", "coroutines")


@pytest.mark.parametrize("program", PROGRAMS)
def test_only_stacks_that_can_be(python, program):
    old = not python.at_least(3, 11)
    with Target(python, SCRIPT, program) as target:
        running = sample(target.pid)
        stopped = sample(target.pid, "--blocking", seconds=SECONDS / 2)
    # On a busy machine a process may take all of the time to stop once, and so deep a stack may never be seen whole.
    assert program == "deep" or running.total > 0
    assert not stopped.impossible, shorten(stopped.impossible)
    assert not stopped.misplaced, shorten(stopped.misplaced)
    if is_open(python, program):
        return
    allowed = max(FEW, IMPOSSIBLE[old] * running.total)
    assert sum(running.impossible.values()) <= allowed, shorten(running.impossible)
    assert sum(running.misplaced.values()) <= max(FEW, MISPLACED[old] * running.total), shorten(running.misplaced)
    assert running.dropped_share <= DROPPED, running.counters
    if min(running.total, stopped.total) > 500:
        names = set(running.shares) | set(stopped.shares)
        off = {name: running.shares.get(name, 0) - stopped.shares.get(name, 0) for name in names}
        assert all(abs(share) <= SHARE for share in off.values()), off
