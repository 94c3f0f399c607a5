"""Profiles as descriptions for make_profile (tests/tools/make_profile.c says how they look), and the truth about them,
summed up here from the samples alone."""

import random
from collections import Counter, defaultdict

PYTHON, NATIVE, GC = 0, 1, 2
RUNNING, IDLE = 1, 2
LIBRARY = "/usr/lib/python3.11/json/decoder.py"
HOSTILE = "</script><script>alert(1)</script>\"'&<!--\n;\t\u2028é漢😀\x1b[31m"

SOURCE = """\
import json


def leaf(n):
    text = "</script><b>not markup</b> é漢😀"
    return n * 2


class Tree:
    def grow(self, n):
        if n:
            self.grow(n - 1)
        leaf(n)


def main():
    while True:
        Tree().grow(3)
        json.loads("[]")
"""


def frame(function, file, line, first_line, qualname=None, kind=PYTHON):
    return {
        "function": function,
        "qualname": qualname or function,
        "file": file,
        "line": line,
        "first_line": first_line,
        "kind": kind,
    }


def small(file, mode="wall"):
    """Three threads in a program of a few functions, with recursion, library and native code, and hostile names."""
    frames = [
        frame("main", file, 18, 16),
        frame("main", file, 19, 16),
        frame("grow", file, 12, 10, "Tree.grow"),
        frame("grow", file, 13, 10, "Tree.grow"),
        frame("leaf", file, 5, 4),
        frame("leaf", file, 6, 4),
        frame("decode", LIBRARY, 340, 332, "JSONDecoder.decode"),
        frame("", "", -1, -1, kind=NATIVE),
        frame(HOSTILE, file, 2, 1),
        frame("<lambda>", file + HOSTILE, 1, 1),
    ]
    stacks = [[0], [0, 3, 4], [0, 3, 5], [0, 2, 3, 4], [0, 2, 2, 2, 3, 5], [1, 6], [1, 6, 7], [1, 6, 7, 9], [8], [0, 2]]
    chance = random.Random(42)
    samples, time = [], 0
    for _ in range(600):
        time += chance.randrange(900_000, 1_100_000)
        for thread in range(3):
            stack = chance.choice([8, 8, 8, 1] if thread == 2 else [0, 1, 2, 3, 4, 5, 6, 7, 9])
            samples.append([thread, stack, time, chance.randrange(900_000, 1_100_000), chance.choice([RUNNING, IDLE])])
    return {
        "processes": [{"pid": 4242, "command": ["python3", file, HOSTILE], "mode": mode}],
        "threads": [
            {"native_id": 4242, "name": "MainThread"},
            {"native_id": 4243, "name": "worker"},
            {"native_id": 4244, "name": HOSTILE},
        ],
        "frames": frames,
        "stacks": stacks,
        "samples": samples,
        "counters": {"taken": len(samples), "missed": 7, "inconsistent": 2, "errors": 1},
    }


def shown(thing):
    """A description as strobe shows its texts: control characters as \\xNN, so that none reaches a terminal."""
    if isinstance(thing, str):
        return "".join(f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c for c in thing)
    if isinstance(thing, dict):
        return {key: shown(value) for key, value in thing.items()}
    return [shown(item) for item in thing] if isinstance(thing, list) else thing


def single(description):
    """The same with its first thread alone."""
    return {
        **description,
        "threads": description["threads"][:1],
        "samples": [sample for sample in description["samples"] if sample[0] == 0],
    }


def large(distinct, file="/srv/app/large.py"):
    """Very many distinct frames, in stacks of some thirty."""
    chance = random.Random(7)
    frames = [frame(f"function_{i // 3}", f"{file}.{i // 3 % 97}", i + 1, i // 3) for i in range(distinct)]
    stacks, spine = [], [0]
    for i in range(1, distinct):
        if len(spine) > 30 or chance.random() < 0.2:
            del spine[chance.randrange(1, 4) :]
        spine.append(i)
        stacks.append(list(spine))
    samples = [[0, i, (i + 1) * 100_000, 100_000, RUNNING] for i in range(len(stacks))]
    return {
        "processes": [{"pid": 1, "command": ["python3", "large.py"], "rate_hz": 10000}],
        "threads": [{"native_id": 1, "name": "MainThread"}],
        "frames": frames,
        "stacks": stacks,
        "samples": samples,
    }


class Truth:
    """What the samples of a description add up to, in nanoseconds."""

    def __init__(self, description):
        self.description = description
        self.total = 0
        self.by_thread = Counter()
        self.by_stack = defaultdict(Counter)  # thread -> stack of frame numbers -> weight
        self.samples_by_stack = Counter()
        for thread, stack, _, weight, _ in description["samples"]:
            path = tuple(description["stacks"][stack])
            self.total += weight
            self.by_thread[thread] += weight
            self.by_stack[thread][path] += weight
            self.samples_by_stack[path] += 1

    def paths(self):
        for stacks in self.by_stack.values():
            yield from stacks.items()

    def self_by(self, key):
        """Weight of the paths that end in it, by key(frame)."""
        sums = Counter()
        for path, weight in self.paths():
            sums[key(self.description["frames"][path[-1]])] += weight
        return sums

    def total_by(self, key):
        """Weight of the paths that it is on, once each."""
        sums = Counter()
        for path, weight in self.paths():
            for name in {key(self.description["frames"][number]) for number in path}:
                sums[name] += weight
        return sums

    def edges(self, key):
        """Weight of the paths on which the first calls the second."""
        sums = Counter()
        for path, weight in self.paths():
            names = [key(self.description["frames"][number]) for number in path]
            for edge in set(zip(names, names[1:])):
                sums[edge] += weight
        return sums
