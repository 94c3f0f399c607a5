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
from dataclasses import dataclass
from pathlib import Path

from harness.targets import PROGRAMS as FOLDER

# What takes longer, to begin or for one turn, is given up.
LIMIT_S = 60


class DidNotRun(Exception):
    pass


@dataclass(frozen=True)
class Turn:
    wall_s: float  # for a round
    cpu_s: float


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
        self.connection.settimeout(LIMIT_S)
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

    def turn(self, seconds):
        try:
            print(seconds, file=self.lines, flush=True)
            answer = json.loads(self.lines.readline())
        except (OSError, ValueError):
            self.kill()
            raise DidNotRun(self.words("ended, or took too long")) from None
        return Turn(answer["wall_s"] / answer["rounds"], answer["cpu_s"] / answer["rounds"])

    def close(self):
        """Lets it end, and the tool write what it writes."""
        with contextlib.suppress(OSError):
            self.lines.close()
        self.connection.close()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self.output.close()


def begin(stack, launcher, package_folder, program):
    """A Looping that has had a turn to warm up; None, and why on standard error, when it does not run."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    try:
        looping = Looping(launcher, package_folder, program, folder)
        stack.callback(looping.close)
        looping.turn(0)
        return looping
    except DidNotRun as reason:
        print(f"{' '.join(program)}: {reason}", file=sys.stderr, flush=True)
        return None


def take(due, seconds):
    """{name: Turn} of those that ran."""
    turns = {}
    for looping in due:
        try:
            turns[looping.name] = looping.turn(seconds)
        except DidNotRun as reason:
            print(reason, file=sys.stderr, flush=True)
    return turns


def compare(bare, tools, package_folder, program, seconds, counts):
    """{tool: [(bare Turn, watched Turn), ...]}: turns of so many seconds each, in another order each time; how many, `counts`
    says by the tool's name."""
    found = {tool.name: [] for tool in tools}
    with contextlib.ExitStack() as stack:
        begun = [begin(stack, tool, package_folder, program) for tool in (bare, *tools)]
        for index in range(max(counts.values())):
            due = [one for one in begun if one and not one.ended and index < counts.get(one.name, max(counts.values()))]
            start = index % max(1, len(due))
            turns = take([*due[start:], *due[:start]], seconds)
            for name in found:
                if bare.name in turns and name in turns:
                    found[name].append((turns[bare.name], turns[name]))
    return found
