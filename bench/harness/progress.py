"""How fast a target gets on with strobe looking at it and without, in pairs of spans next to each other."""

import contextlib
import math
import os
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import samplers, targets

SPAN_S = 0.15
# Of the beginning of a span, left out of it: strobe has just begun, or the processors' caches are still its.
PAUSE_S = 0.02


@dataclass(frozen=True)
class Pair:
    """Two spans, one right after the other."""

    slow_down: float  # time for a round, watched to bare, less one
    strobe_share: float  # of a processor
    target_share: float  # of its processor, the lesser of the two spans'

    @property
    def runs_truly(self):
        return self.target_share >= samplers.TRULY_RUNNING


@dataclass(frozen=True)
class Progress:
    """A working.py and its counts."""

    pid: int
    path: Path

    def rounds(self):
        content = self.path.read_bytes()
        return sum(int.from_bytes(content[at : at + 8], "little") for at in range(0, len(content), 8))

    def span(self, seconds):
        """(rounds a second, the target's share of its processor) over a span that begins now."""
        time.sleep(PAUSE_S)
        start_s, start_rounds, start_cpu_s = time.monotonic(), self.rounds(), samplers.target_cpu_s(self.pid)
        time.sleep(seconds)
        wall_s, rounds = time.monotonic() - start_s, self.rounds() - start_rounds
        return rounds / wall_s, (samplers.target_cpu_s(self.pid) - start_cpu_s) / wall_s


@contextlib.contextmanager
def working(python, depth, working_threads, waiting_threads):
    """A working.py on a processor of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts"
        arguments = (depth, working_threads, waiting_threads, path)
        with targets.running(python, "working.py", *arguments) as target:
            samplers.pin_target(target.pid)
            yield Progress(target.pid, path)


@contextlib.contextmanager
def watched(context, pid, rate_hz, *options):
    """strobe, from when it samples on. Gives its process id; ended with Ctrl-C."""
    with tempfile.TemporaryDirectory() as folder:
        command = [context.strobe, "attach", "-r", str(rate_hz), "--capture", f"{folder}/capture.strobe", *options]
        process = subprocess.Popen(
            [*command, "-f", "json", "-o", f"{folder}/report.json", str(pid)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, samplers.cores()[1]),
        )
        try:
            if "sampling process" not in process.stderr.readline():
                raise RuntimeError("strobe does not sample")
            yield process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


@contextlib.contextmanager
def paused(pid):
    """strobe stopped by a signal: nobody looks at the target. What is due meanwhile is missed, and never made up for."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def watched_span(progress, pid, seconds):
    """(rounds a second, the target's share of its processor, strobe's share of one)"""
    start_s, start_cpu_s = time.monotonic(), samplers.target_cpu_s(pid)
    rate, share = progress.span(seconds)
    return rate, share, (samplers.target_cpu_s(pid) - start_cpu_s) / (time.monotonic() - start_s)


def bare_span(progress, pid, seconds):
    with paused(pid):
        return progress.span(seconds)


def pairs(context, progress, rate_hz, count, *options):
    """So many Pairs, every other with the bare span first. One strobe looks on through all of them, when it is not paused:
    short spans next to each other see the same machine, which long ones do not."""
    found = []
    with watched(context, progress.pid, rate_hz, *options) as pid:
        for index in range(count):
            if index % 2 == 0:
                bare_rate, bare_share = bare_span(progress, pid, SPAN_S)
            watched_rate, watched_share, own_share = watched_span(progress, pid, SPAN_S)
            if index % 2 == 1:
                bare_rate, bare_share = bare_span(progress, pid, SPAN_S)
            # A target that did not get on at all had no processor, and will not count.
            slow_down = bare_rate / watched_rate - 1 if watched_rate > 0 else math.inf
            found.append(Pair(slow_down, own_share, min(bare_share, watched_share)))
    return found


@dataclass(frozen=True)
class Estimate:
    """A median and where it lies with 95% confidence."""

    median: float
    low: float
    high: float

    def verdict(self, goal):
        """Whether it is below the goal. That a target gets on better when it is looked at is noise, and so are figures
        which say so."""
        if self.high < goal and self.low > -3 * goal:
            return "reached"
        return "not reached" if self.low > goal else "not shown, too much noise"

    def text(self):
        return f"{self.median:+.2%} ({self.low:+.2%} to {self.high:+.2%})"


def estimate(values):
    """Whatever the distribution: the true median is between the k-th least and the k-th greatest of n values with
    1 − 2·P(Binomial(n, ½) < k)."""
    values = sorted(values)
    count, rank, below = len(values), 0, 0.5 ** len(values)
    term = below
    while 2 * below <= 0.05 and rank < count // 2:
        rank += 1
        term *= (count - rank + 1) / rank
        below += term
    rank = max(0, rank - 1)
    return Estimate(statistics.median(values), values[rank], values[-1 - rank])
