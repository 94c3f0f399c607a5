"""Costs of processes and what can be said of many of them."""

import statistics
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What one run of a command cost, start to end."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Spread:
    """Least, median and greatest of some figures."""

    least: float
    median: float
    greatest: float

    @classmethod
    def of(cls, values):
        values = list(values)
        return cls(min(values), statistics.median(values), max(values))

    def scaled(self, factor):
        return Spread(self.least * factor, self.median * factor, self.greatest * factor)

    def text(self, digits=2):
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}–{self.greatest:.{digits}f})"


class CommandFailed(Exception):
    """A measured command did not end well."""


def measure_command(measure, command):
    """The Cost of one run of `command`; `measure` is the program of bench/measure.c."""
    answer = subprocess.run([measure, *command], stdout=subprocess.PIPE, text=True, check=True)
    wall_ns, cpu_ns, peak_bytes, status = map(int, answer.stdout.split())
    if status != 0:
        raise CommandFailed(f"{command[0]} ended with status {status}")
    return Cost(wall_ns / 1e9, cpu_ns / 1e9, peak_bytes)


def measure_by_turns(measure, commands, runs, may_fail=()):
    """{name: [Cost, ...]} of commands {name: command}, run A B C A B C ..., so that what else the machine does falls on
    all of them alike, and so that costs with the same index can be compared in pairs. Those of `may_fail` are left out
    when one of their runs fails."""
    costs = {name: [] for name in commands}
    for _ in range(runs):
        for name in list(costs):
            try:
                costs[name].append(measure_command(measure, commands[name]))
            except CommandFailed as reason:
                if name not in may_fail:
                    raise
                print(f"{name}: {reason}", flush=True)
                del costs[name]
    return costs


def pairwise_ratio(costs, other_costs, figure):
    """The median of the ratios of one figure ("wall_s") in each pair of runs."""
    pairs = zip(costs, other_costs, strict=True)
    return statistics.median(getattr(cost, figure) / getattr(other, figure) for cost, other in pairs)


def table(head, rows):
    """Lines of a Markdown table; all columns but the first two to the right."""
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "|".join("---" if column < 2 else "--:" for column in range(len(head))) + "|")
    lines.extend("| " + " | ".join(row) + " |" for row in rows)
    return lines
