"""Programs of pyperformance under several tools at once, which take turns: only one of them runs at a time, for a fraction of a
second, so that all of them see the same machine."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.targets import PROGRAMS as FOLDER

# What takes longer, to begin or for one turn, is given up.
LIMIT_S = 60
# Others' tools are not waited for without end: each turn may take so many times as long as without them, or this.
LEAST_LIMIT_S = 2
# They begin with a round that does not count only where it is shorter than this.
WARMED_UP_S = 0.5


class DidNotRun(Exception):
    pass


class TooSlow(DidNotRun):
    def __init__(self, name, after_s):
        super().__init__(f"{name}: given up after {after_s:.1f} s")
        self.after_s = after_s


@dataclass(frozen=True)
class Turn:
    wall_s: float  # for a round
    cpu_s: float
    is_least: bool = False  # it was given up then: a round takes longer


@dataclass(frozen=True)
class Effort:
    """How much is measured of a program."""

    turn_s: float
    counts: dict  # how many turns, by the tool's name; what has no entry, and no tool at all, as many as the most
    enough_s: float = float("inf")  # after this no more turns begin, when there are LEAST_TURNS
    hurried: dict = field(default_factory=dict)  # tools that are given up when they are so many times slower, by name

    LEAST_TURNS = 3

    def goes_on(self, index, spent_s):
        return index < max(self.counts.values()) and (index < self.LEAST_TURNS or spent_s < self.enough_s)

    def limit_s(self, name, bare_s):
        factor = self.hurried.get(name)
        return LIMIT_S if factor is None or bare_s is None else min(LIMIT_S, max(LEAST_LIMIT_S, factor * bare_s))


class Looping:
    """A looped.py that waits for its turn."""

    def __init__(self, launcher, package_folder, program, folder):
        self.name = launcher.name
        self.ended = False
        self.output = open(f"{folder}/output", "w+b")
        with socket.socket(socket.AF_UNIX) as listening:
            path = f"{folder}/socket"
            listening.bind(path)
            listening.listen()
            listening.settimeout(LIMIT_S)
            self.process = subprocess.Popen(
                launcher.command(FOLDER / "looped.py", package_folder, *program, path),
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                env=launcher.environment,
                cwd=folder,
                start_new_session=True,
            )
            try:
                self.connection, _ = listening.accept()
            except TimeoutError:
                self.kill()
                raise DidNotRun(self.words("did not begin")) from None
        self.lines = self.connection.makefile("rw")

    def words(self, what):
        self.output.seek(0)
        said = self.output.read().decode(errors="replace").strip().splitlines()
        return f"{self.name}: {what}, {said[-1:]}"

    def kill(self):
        self.ended = True
        # Some have processes of their own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def turn(self, seconds, limit_s=LIMIT_S):
        self.connection.settimeout(limit_s)
        try:
            print(seconds, file=self.lines, flush=True)
            answer = json.loads(self.lines.readline())
        except TimeoutError:
            self.kill()
            raise TooSlow(self.name, limit_s) from None
        except (OSError, ValueError):
            self.kill()
            raise DidNotRun(self.words("ended")) from None
        return Turn(answer["wall_s"] / answer["rounds"], answer["cpu_s"] / answer["rounds"])

    def close(self, limit_s=LIMIT_S):
        """Lets it end, and the tool write what it writes."""
        with contextlib.suppress(OSError):
            self.lines.close()
        self.connection.close()
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.output.close()


class Comparison:
    """One program under none and under some tools, by turns."""

    def __init__(self, bare, tools, effort):
        self.bare, self.tools, self.effort = bare, tools, effort
        self.bare_turn = None  # the last one
        self.found = {tool.name: [] for tool in tools}

    def take(self, looping, seconds):
        """A Turn; None, and why on standard error, when it did not come to its end."""
        span_s = max(seconds, self.bare_turn.wall_s) if self.bare_turn is not None else None
        limit_s = self.effort.limit_s(looping.name, span_s)
        try:
            turn = looping.turn(seconds, limit_s)
        except TooSlow as reason:
            print(reason, file=sys.stderr, flush=True)
            # The round that it was in at the end of the turn.
            return Turn(limit_s - seconds, limit_s - seconds, True) if self.bare_turn is not None else None
        except DidNotRun as reason:
            print(reason, file=sys.stderr, flush=True)
            return None
        if looping.name == self.bare.name:
            self.bare_turn = turn
        return turn

    def begin(self, stack, launcher, package_folder, program):
        """A Looping that has warmed up; None when it does not run."""
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        is_hurried = launcher.name in self.effort.hurried
        try:
            looping = Looping(launcher, package_folder, program, folder)
        except DidNotRun as reason:
            print(f"{' '.join(program)}: {reason}", file=sys.stderr, flush=True)
            return None
        stack.callback(looping.close, LIMIT_S / 6 if is_hurried else LIMIT_S)
        if not is_hurried or self.bare_turn is None or self.bare_turn.wall_s < WARMED_UP_S:
            turn = self.take(looping, 0)
            if turn is not None and turn.is_least:
                self.found[launcher.name].append((self.bare_turn, turn))
        return looping

    def run(self, package_folder, program):
        effort, most = self.effort, max(self.effort.counts.values())
        with contextlib.ExitStack() as stack:
            begun = [self.begin(stack, tool, package_folder, program) for tool in (self.bare, *self.tools)]
            start_s, index = time.monotonic(), 0
            while effort.goes_on(index, time.monotonic() - start_s):
                due = [one for one in begun if one and not one.ended and index < effort.counts.get(one.name, most)]
                start = index % max(1, len(due))
                turns = {one.name: self.take(one, effort.turn_s) for one in [*due[start:], *due[:start]]}
                base = turns.pop(self.bare.name, None)
                for name, turn in turns.items() if base is not None else ():
                    if turn is not None:
                        self.found[name].append((base, turn))
                index += 1
        return self.found


def compare(bare, tools, package_folder, program, effort):
    """{tool: [(bare Turn, watched Turn), ...]}: turns in another order each time."""
    return Comparison(bare, tools, effort).run(package_folder, program)


class AtLeast(float):
    """A ratio of which is known only that it is greater."""


def ratio(pairs, figure):
    """The median of what neighbouring turns cost, watched to bare."""
    return median(
        (AtLeast if watched.is_least else float)(getattr(watched, figure) / getattr(bare, figure)) for bare, watched in pairs
    )


def median(ratios):
    """It is AtLeast that where one that is might be in another place."""
    ordered = sorted(ratios)
    count = len(ordered)
    value = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    is_least = any(isinstance(one, AtLeast) for one in ordered[: count // 2 + 1])
    return AtLeast(value) if is_least else value


def text(value, digits):
    return f"{'> ' if isinstance(value, AtLeast) else ''}{value:.{digits}f}"
