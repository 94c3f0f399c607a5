"""What a program loses by being run under strobe and other profilers, each with its defaults."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import figures, interpreters, launchers, packages
from harness.targets import PROGRAMS as FOLDER

TITLE = "Slow-down of ten programs, started under a profiler"
GOAL = 1.01
SECONDS, SECONDS_LONG = 1.0, 10.0
ROUNDS, ROUNDS_LONG = 3, 5
# What takes longer than so much and so many times as long as it should is given up.
LIMIT_S, LIMIT_SHARE = 60, 20
# Those of the paper on Scalene (OSDI'23), as pyperformance names them.
PROGRAMS = {
    "mdp": ("mdp", ""),
    "async_tree none": ("async_tree", "none"),
    "async_tree io": ("async_tree", "io"),
    "async_tree cpu_io_mixed": ("async_tree", "cpu_io_mixed"),
    "async_tree memoization": ("async_tree", "memoization"),
    "fannkuch": ("fannkuch", ""),
    "pprint": ("pprint", ""),
    "raytrace": ("raytrace", ""),
    "sympy": ("sympy", ""),
    "docutils": ("docutils", ""),
}


@dataclass(frozen=True)
class Run:
    loops: int
    wall_s: float  # of the rounds alone
    cpu_s: float
    whole_s: float  # of the command, start to end


class DidNotRun(Exception):
    pass


def run_command(command, environment, folder, limit_s):
    """Its exit status; None when it took too long."""
    with open(f"{folder}/output", "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        # Some have processes of their own.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def run_once(launcher, package_folder, folder, program, loops, seconds):
    result = Path(folder) / "result.json"
    result.unlink(missing_ok=True)
    arguments = (package_folder, *PROGRAMS[program], loops, seconds, result)
    command = launcher.command(FOLDER / "looped.py", *arguments)
    start = time.monotonic()
    status = run_command(command, launcher.environment, folder, LIMIT_S + LIMIT_SHARE * seconds)
    whole_s = time.monotonic() - start
    if status != 0 or not result.exists():
        words = Path(folder, "output").read_text(errors="replace").strip().splitlines()
        raise DidNotRun(f"{launcher.name}: {'took too long' if status is None else f'exit status {status}'}, {words[-1:]}")
    return Run(whole_s=whole_s, **json.loads(result.read_text()))


def in_turn(tools, package_folder, folder, program, loops, seconds):
    """{tool: Run} of those that ran."""
    runs = {}
    for tool in tools:
        try:
            runs[tool.name] = run_once(tool, package_folder, folder, program, loops, seconds)
        except DidNotRun as reason:
            print(f"{program}: {reason}", file=sys.stderr, flush=True)
    return runs


def compare(bare, tools, package_folder, folder, program, seconds, rounds):
    """{tool: [(bare, watched), ...]}, one of each in every round, each round in another order."""
    loops = run_once(bare, package_folder, folder, program, 0, seconds).loops
    every = [bare, *tools]
    found = {tool.name: [] for tool in tools}
    for index in range(rounds):
        turn = index % len(every)
        runs = in_turn([*every[turn:], *every[:turn]], package_folder, folder, program, loops, seconds)
        for tool in tools:
            if bare.name in runs and tool.name in runs:
                found[tool.name].append((runs[bare.name], runs[tool.name]))
    return found


def ratio(pairs, figure):
    return statistics.median(getattr(watched, figure) / getattr(bare, figure) for bare, watched in pairs)


def measure(context, interpreter):
    """({tool: {program: (wall, cpu, whole) ratios}})"""
    package_folder = packages.folder("programs", interpreter)
    seconds, rounds = (SECONDS_LONG, ROUNDS_LONG) if context.long else (SECONDS, ROUNDS)
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        bare, tools = launchers.bare(interpreter), launchers.of_interpreter(context, interpreter, folder)
        for program in PROGRAMS:
            for name, found in compare(bare, tools, package_folder, folder, program, seconds, rounds).items():
                if found:
                    figures_of = tuple(ratio(found, figure) for figure in ("wall_s", "cpu_s", "whole_s"))
                    ratios.setdefault(name, {})[program] = figures_of
    return ratios


def median_of(by_program, index):
    return statistics.median(values[index] for values in by_program.values())


def rows_of(interpreter, ratios):
    for name, by_program in ratios.items():
        walls = [f"{by_program[p][0]:.3f}" if p in by_program else "" for p in PROGRAMS]
        medians = [f"**{median_of(by_program, 0):.3f}**", f"{median_of(by_program, 1):.3f}", f"{median_of(by_program, 2):.3f}"]
        yield [interpreter.version_text, name, *medians, *walls]


def run(context):
    rows, verdicts = [], []
    for interpreter in filter(None, (interpreters.pick(version=version) for version in ((3, 13), (3, 15)))):
        ratios = measure(context, interpreter)
        rows.extend(rows_of(interpreter, ratios))
        if "strobe run" in ratios:
            wall, cpu = (median_of(ratios["strobe run"], index) for index in (0, 1))
            verdict = "reached" if wall <= GOAL else "not reached"
            verdicts.append(f"- {interpreter.version_text}: goal ≤ {GOAL:.2f}×: **{verdict}** ({wall:.3f}×; by CPU time {cpu:.3f}×)")
    head = ["Python", "tool", "**median**", "its CPU time", "start to end", *PROGRAMS]
    seconds, rounds = (SECONDS_LONG, ROUNDS_LONG) if context.long else (SECONDS, ROUNDS)
    return [
        *figures.table(head, rows),
        "",
        f"Times under the tool to times without, medians over {rounds} runs of each, by turns. Each program is looped "
        f"for {seconds:g} s; the columns of the programs and the first are wall time of those loops alone, the second is the "
        "program's own CPU time in them, the third the wall time of the whole command with its start-up and its report. All "
        "tools with their default rates (strobe and profiling.sampling 1 kHz, Scalene and py-spy 100 Hz)."
        + ("" if context.long else " `bench/run --long run_slow_down` loops for 10 s."),
        "",
        *verdicts,
    ]
