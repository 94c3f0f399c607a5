"""Victims run by `strobe run`, and what the report says of their memory. Sizes are primes, so that no sum comes about by
chance."""

import json
import math
import os

from harness import strobe

MIB = 1 << 20
# The stated margin is that of 19 in 20 cases, 1.96 standard deviations; three of them are exceeded once in 250,000,000.
# And the random choice is that of a fixed seed, so that a run is as the one before, but for what threads do.
MARGINS = 3
STRIDE = 512 << 10
# What a line takes for objects beside the large block that is looked at: heads of objects, frames, lists that keep them.
BESIDE_BYTES = 8192
# A block of malloc's is known by what it takes, when it grows.
ROUNDING = 0.001
SEED = {"STROBE_AGENT_MEMORY_SEED": "20011"}
HEAD = "import mmap, os, signal, sys, threading\n"


def most_samples(small_bytes):
    """How many of the samples of so many bytes in small blocks there may be: one run in 10,000,000 has more (Poisson)."""
    mean = small_bytes / STRIDE
    chance, count = math.exp(-mean), 0
    all_chances = chance
    while all_chances < 1 - 1e-7:
        count += 1
        chance *= mean / count
        all_chances += chance
    return count


class Report:
    """A report, by the marks in the program: a line that ends in `#name` is the line `name`."""

    def __init__(self, report, path):
        self.report = report
        self.memory = report.get("memory")
        self.rows = {}
        lines = {number: line.rpartition("#")[2] for number, line in enumerate(path.read_text().split("\n"), 1)}
        for file in report["files"]:
            if file["path"] == str(path):
                self.rows = {lines[row["line"]]: row for row in file["lines"] if row["line"]}

    def assert_near(self, mark, measure, expected, slack=0):
        """An amount is what it should be, as nearly as the report says that it knows it; `slack`: bytes that may be
        there beside it."""
        row = self.rows[mark]
        amount, margin = row[measure + "_bytes"], row.get(measure + "_bytes_margin", 0)
        assert expected - MARGINS * margin <= amount <= expected + slack + MARGINS * margin, (mark, measure, expected, row)
        return margin

    def assert_exact(self, mark, measure, expected, small_bytes=BESIDE_BYTES):
        """What is at least 1 MiB is told always, so that nothing of it is missing. But of the small blocks beside it one may
        be sampled, or a few, and then stands for a stride and its own size."""
        amount = self.rows.get(mark, {}).get(measure + "_bytes", 0)
        most = expected + small_bytes + most_samples(small_bytes) * (STRIDE + BESIDE_BYTES)
        assert (1 - ROUNDING) * expected <= amount <= most, (mark, measure, expected, most, self.rows.get(mark))


def runner(folder):
    """A function that runs the code of a victim."""

    def run_it(python, code, *options, arguments=(), status=0, env=None):
        path, report = folder / "victim.py", folder / "report.json"
        path.write_text(HEAD + code)
        command = ["run", "--no-capture", *options, "-o", report, "--", python.path, path, *arguments]
        result = strobe(*command, env={**os.environ, **SEED, **(env or {})}, cwd=folder)
        assert result.returncode == status, result
        return Report(json.loads(report.read_text()), path)

    return run_it
