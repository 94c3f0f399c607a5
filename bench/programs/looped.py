"""Runs a program of pyperformance again and again, without the processes that pyperf starts for each value.

usage: looped.py FOLDER PROGRAM VARIANT SOCKET

FOLDER is where pyperformance is installed, VARIANT the program's argument or "". The program "churn" is the one beside this
file, in VARIANT threads. Connects to SOCKET, and for each line that comes from there, a number of seconds, runs rounds until so
much time is over, at least one, and answers with a line of JSON: {"rounds", "wall_s", "cpu_s"}. Ends when there are no more
lines.
"""

import asyncio
import gc
import json
import runpy
import socket
import sys
import time
from pathlib import Path
from types import ModuleType

FOLDER, PROGRAM, VARIANT, SOCKET = sys.argv[1:]
rounds = []  # what one round calls
CHURN_ROUNDS = 160


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


def load_churn():
    """A round takes some 10 ms of one thread, so that to wake the others up is little beside it. They stay: to begin and end
    a thread is not what is asked for."""
    from concurrent.futures import ThreadPoolExecutor

    import churn

    count = int(VARIANT)
    pool = ThreadPoolExecutor(count)
    rounds.append(lambda: list(pool.map(churn.churn, [CHURN_ROUNDS // count] * count, [0] * count)))


def load_pyperformance():
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


def run_for(seconds):
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while count == 0 or time.perf_counter() - wall < seconds:
        run_round()
        count += 1
    return {"rounds": count, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def main():
    (load_churn if PROGRAM == "churn" else load_pyperformance)()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(SOCKET)
        with connection.makefile("rw") as lines:
            for seconds in lines:
                print(json.dumps(run_for(float(seconds))), file=lines, flush=True)


if __name__ == "__main__":
    main()
