"""Runs a program of pyperformance again and again, without the processes that pyperf starts for each value.

usage: looped.py FOLDER PROGRAM VARIANT LOOPS SECONDS RESULT

FOLDER is where pyperformance is installed, VARIANT the program's argument or "". Runs so many rounds, or, when LOOPS is
0, as many as take SECONDS. Writes {"loops", "wall_s", "cpu_s"} of the rounds alone to the file RESULT.
"""

import asyncio
import gc
import json
import runpy
import sys
import time
from pathlib import Path
from types import ModuleType

FOLDER, PROGRAM, VARIANT, LOOPS, SECONDS, RESULT = sys.argv[1:]
rounds = []  # what one round calls


class Runner:
    """What of pyperf.Runner these programs use: it only notes what is to be run."""

    def __init__(self, **options):
        import argparse

        self.metadata = {}
        self.argparser = argparse.ArgumentParser()

    def parse_args(self):
        return self.argparser.parse_args([VARIANT] if VARIANT else [])

    def bench_func(self, name, function, *arguments):
        rounds.append(lambda: function(*arguments))

    def bench_time_func(self, name, function, *arguments):
        rounds.append(lambda: function(1, *arguments))

    def bench_async_func(self, name, function):
        rounds.append(lambda: asyncio.run(function()))


def load():
    pyperf = ModuleType("pyperf")
    pyperf.Runner, pyperf.perf_counter = Runner, time.perf_counter
    sys.modules["pyperf"] = pyperf
    sys.path.insert(0, FOLDER)
    script = Path(FOLDER, "pyperformance", "data-files", "benchmarks", "bm_" + PROGRAM, "run_benchmark.py")
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    # One of them switches it off for a process that ends soon.
    gc.enable()


def run_round():
    for run in rounds:
        run()


def main():
    load()
    loops, wanted, seconds = 0, int(LOOPS), float(SECONDS)
    wall, cpu = time.perf_counter(), time.process_time()
    while loops < wanted or (wanted == 0 and time.perf_counter() - wall < seconds):
        run_round()
        loops += 1
    spent = {"loops": loops, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    Path(RESULT).write_text(json.dumps(spent))


if __name__ == "__main__":
    main()
