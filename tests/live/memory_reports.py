"""Victims run by `strobe run`, and what the report says of their memory. Sizes are primes, so that no sum comes about by
chance."""

import json
import os

from harness import strobe

MIB = 1 << 20
# The stated margin is that of 19 in 20 cases, 1.96 standard deviations; three of them are exceeded once in 250,000,000.
# And the random choice is that of a fixed seed, so that a run is as the one before, but for what threads do.
MARGINS = 3
STRIDE = 512 << 10
SEED = {"STROBE_AGENT_MEMORY_SEED": "20011"}
HEAD = "import mmap, os, signal, sys, threading\n"


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


def runner(folder):
    """A function that runs the code of a victim."""

    def run_it(python, code, *options, status=0, env=None):
        path, report = folder / "victim.py", folder / "report.json"
        path.write_text(HEAD + code)
        command = ["run", "--no-capture", *options, "-o", report, "--", python.path, path]
        result = strobe(*command, env={**os.environ, **SEED, **(env or {})}, cwd=folder)
        assert result.returncode == status, result
        return Report(json.loads(report.read_text()), path)

    return run_it
