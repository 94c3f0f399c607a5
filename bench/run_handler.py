"""What the agent's signal handler takes to look at its thread's stack and write it down."""

import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from harness import figures, interpreters, launchers
from harness.targets import PROGRAMS

TITLE = "The agent's signal handler, at depth 20"
FRAMES = 20
SECONDS, SECONDS_LONG = 2, 10
TURNS = 5
GOAL_US = 2.0


def times_us(context, interpreter, kind):
    """Each handler's time, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "times"
        shim = context.tool("bench/libtime-handler.so")
        environment = {**os.environ, "LD_PRELOAD": shim, "TIME_HANDLER_RESULT": str(result)}
        seconds = SECONDS_LONG if context.long else SECONDS
        launcher = launchers.strobe(context, interpreter, folder)
        command = launcher.command(PROGRAMS / "under_frames.py", FRAMES, seconds, kind)
        subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return sorted(int(line) / 1000 for line in result.read_text().split())


def measure(context):
    """{(interpreter's title, caches): [one turn's handlers' times, sorted, ...]}, all by turns."""
    turns = {}
    for _ in range(TURNS):
        for interpreter in interpreters.one_of_each():
            title = f"{interpreter.version_text}{'t' if interpreter.free_threaded else ''}"
            for kind in ("warm", "cold"):
                turns.setdefault((title, kind), []).append(times_us(context, interpreter, kind))
    return turns


def run(context):
    rows, verdicts = [], []
    for (title, kind), turns in measure(context).items():
        figures_of = [(times[0], *(statistics.quantiles(times, n=10)[tenth] for tenth in (0, 4, 8))) for times in turns]
        values = [statistics.median(column) for column in zip(*figures_of)]
        rows.append([title, kind, str(sum(map(len, turns))), *(f"{value:.2f}" for value in values)])
        if kind == "cold":
            verdict = "reached" if values[2] <= GOAL_US else "not reached"
            verdicts.append(f"- {title}: goal ≤ {GOAL_US:.0f} µs with cold caches: **{verdict}** ({values[2]:.2f} µs)")
    head = ["Python", "caches", "samples", "µs: least", "tenth", "median", "nine tenths"]
    return [
        *figures.table(head, rows),
        "",
        "From the handler's first instruction to its last, by the clock (so that on a busy machine it has in it what else "
        f"ran there): medians of {TURNS} turns. The kernel's delivery of a signal and the return from it are not in it. Warm: the "
        "program computes. Cold: it reads more memory than caches hold all the time.",
        "",
        *verdicts,
    ]
