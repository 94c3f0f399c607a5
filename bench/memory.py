"""strobe's own memory while it samples for long."""

import os
import time

from harness import figures, interpreters, progress, samplers, targets

TITLE = "Memory of strobe, sampling at 10 kHz"
RATE_HZ = 10_000
SECONDS, SECONDS_LONG = 30, 600
GOAL_BYTES = 30 << 20
MEBIBYTE = 1 << 20
# What grows by less from the first third to the end is flat: the capture is written in chunks of this order.
FLAT_BYTES = 1 << 20
KINDS = (("base", 20), ("generators", 200))


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def measure(context, interpreter, kind, depth):
    """([resident bytes at each tenth of the time], the peak)"""
    seconds = SECONDS_LONG if context.long else SECONDS
    with targets.running(interpreter.path, "alternating.py", kind, depth) as target:
        samplers.pin_target(target.pid)
        with progress.watched(context, target.pid, RATE_HZ) as pid:
            resident = []
            for _ in range(10):
                time.sleep(seconds / 10)
                resident.append(resident_bytes(pid))
            return resident, peak_bytes(pid)


def run(context):
    rows, verdicts = [], []
    interpreter = interpreters.pick(version=(3, 15)) or interpreters.pick()
    seconds = SECONDS_LONG if context.long else SECONDS
    for kind, depth in KINDS:
        resident, peak = measure(context, interpreter, kind, depth)
        title = f"{interpreter.version_text}, {kind}, depth {depth}"
        shown = [resident[0], resident[2], resident[-1], peak]
        rows.append([title, *(f"{size / MEBIBYTE:.1f}" for size in shown)])
        flat = resident[-1] - resident[2] <= FLAT_BYTES
        verdict = "reached" if flat and peak < GOAL_BYTES else "not reached"
        verdicts.append(f"- {title}: goal flat and < {GOAL_BYTES // MEBIBYTE} MiB: **{verdict}**")
    head = ["target", f"MiB after {seconds / 10:.0f} s", f"after {seconds * 0.3:.0f} s", f"after {seconds} s", "peak"]
    return [
        *figures.table(head, rows),
        "",
        "Resident memory while it samples; the report at the end, which needs more, is not part of it. Flat is what has "
        f"grown by no more than {FLAT_BYTES // MEBIBYTE} MiB since a third of the time."
        + ("" if context.long else " `bench/run --long memory` takes ten minutes."),
        "",
        *verdicts,
    ]
