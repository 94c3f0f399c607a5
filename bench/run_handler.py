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
SECONDS, SECONDS_LONG = 3, 20
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


def run(context):
    rows, verdicts = [], []
    for interpreter in interpreters.one_of_each():
        for kind in ("warm", "cold"):
            times = times_us(context, interpreter, kind)
            tenths = statistics.quantiles(times, n=10)
            title = f"{interpreter.version_text}{'t' if interpreter.free_threaded else ''}"
            rows.append([title, kind, str(len(times)), *(f"{value:.2f}" for value in (times[0], tenths[0], tenths[4], tenths[8]))])
            if kind == "cold":
                verdict = "reached" if tenths[4] <= GOAL_US else "not reached"
                verdicts.append(f"- {title}: goal ≤ {GOAL_US:.0f} µs with cold caches: **{verdict}** ({tenths[4]:.2f} µs)")
    head = ["Python", "caches", "samples", "µs: least", "tenth", "median", "nine tenths"]
    return [
        *figures.table(head, rows),
        "",
        "From the handler's first instruction to its last, by the clock (so that on a busy machine it has in it what else "
        "ran there); the kernel's delivery of a signal and the return from it are not in it. Warm: the program computes. "
        "Cold: it reads more memory than caches hold all the time.",
        "",
        *verdicts,
    ]
