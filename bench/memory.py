"""strobe's own memory while it samples for long."""

import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import figures, interpreters, samplers, targets

TITLE = "Memory of strobe, sampling at 10 kHz"
RATE_HZ = 10_000
# How long the newest interpreter's program is looked at, and how long each of the others'. The goal is 10 minutes.
SECONDS_SHORT, SECONDS, SECONDS_LONG = 120, 600, 600
OTHERS_SECONDS_SHORT, OTHERS_SECONDS, OTHERS_SECONDS_LONG = 6, 12, 600
GOAL_BYTES = 30 << 20
MEBIBYTE = 1 << 20
# What grows by less from the first third to the end is flat: the capture is written in chunks of this order.
FLAT_BYTES = 1 << 20
KINDS = (("base", 20), ("generators", 200))
END_LIMIT_S = 120
# Fewer samples than that, of those asked for, and the run does not say what the goal asks.
ENOUGH = 0.9


class Failed(Exception):
    pass


@dataclass(frozen=True)
class Measured:
    resident: list  # bytes, at each tenth of the time
    peak: int
    samples: int
    capture_bytes: int


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        # A process that has ended has none.
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)


def end(process):
    """Ends strobe as Ctrl-C does; what it said."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=END_LIMIT_S)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed(f"strobe did not end within {END_LIMIT_S} s") from None


def watch(process, seconds):
    """([resident bytes at each tenth of the time], the peak)"""
    resident, peak, start_s = [], 0, time.monotonic()
    for tenth in range(1, 11):
        time.sleep(max(0, start_s + seconds * tenth / 10 - time.monotonic()))
        if process.poll() is not None:
            raise Failed(f"strobe ended: {process.stderr.read().strip()[-200:]}")
        resident.append(resident_bytes(process.pid))
        peak = max(peak, peak_bytes(process.pid))
    return resident, peak


def measure(context, interpreter, kind, depth, seconds):
    with targets.running(interpreter.path, "alternating.py", kind, depth) as target, tempfile.TemporaryDirectory() as folder:
        samplers.pin_target(target.pid)
        report, capture = Path(folder) / "report.json", Path(folder) / "capture.strobe"
        command = [context.strobe, "attach", "-r", str(RATE_HZ), "--quiet", "--capture", str(capture), "-f", "json"]
        process = subprocess.Popen(
            [*command, "-o", str(report), str(target.pid)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, samplers.cores()[1]),
        )
        try:
            resident, peak = watch(process, seconds)
            capture_bytes = capture.stat().st_size
        finally:
            said = end(process) if process.poll() is None else ""
        if process.returncode != 0:
            raise Failed(f"strobe ended with status {process.returncode}: {said.strip()[-200:]}")
        samples = json.loads(report.read_text(encoding="utf-8"))["samples"]["taken"]
    return Measured(resident, peak, samples, capture_bytes)


def cases(context):
    """[(interpreter, kind, depth, seconds)]: each program of the newest interpreter, and one of each other."""
    if context.long:
        seconds, others_seconds = SECONDS_LONG, OTHERS_SECONDS_LONG
    elif context.short:
        seconds, others_seconds = SECONDS_SHORT, OTHERS_SECONDS_SHORT
    else:
        seconds, others_seconds = SECONDS, OTHERS_SECONDS
    newest = interpreters.pick(version=(3, 15)) or interpreters.pick()
    found = [(newest, kind, depth, seconds) for kind, depth in KINDS]
    others = [one for one in interpreters.one_of_each() if one.minor != newest.minor]
    return found + [(one, *KINDS[0], others_seconds) for one in others]


def judge(measured, seconds):
    """(the verdict, why)"""
    reasons = []
    growth = measured.resident[-1] - measured.resident[2]
    if growth > FLAT_BYTES:
        reasons.append(f"it grew by {growth / MEBIBYTE:.1f} MiB in the last {seconds * 0.7:.0f} s")
    if measured.peak >= GOAL_BYTES:
        reasons.append(f"its peak was {measured.peak / MEBIBYTE:.1f} MiB")
    if reasons:
        return "not reached", reasons
    if measured.samples < RATE_HZ * seconds * ENOUGH:
        share = measured.samples / (RATE_HZ * seconds)
        return "not shown", [f"the machine was too busy: {share:.0%} of the samples asked for were taken"]
    if seconds < SECONDS_LONG:
        return f"holds for {seconds} s", [f"the goal asks for {SECONDS_LONG}"]
    return "reached", []


def run(context):
    rows, verdicts = [], []
    for interpreter, kind, depth, seconds in cases(context):
        version = interpreter.version_text + ("t" if interpreter.free_threaded else "")
        title = f"{version}, {kind}, depth {depth}, {seconds} s"
        try:
            measured = measure(context, interpreter, kind, depth, seconds)
        except (Failed, OSError, ValueError, RuntimeError) as reason:
            rows.append([title, *[""] * 6])
            verdicts.append(f"- {title}: **not measured**: {reason}")
            continue
        shown = [measured.resident[0], measured.resident[2], measured.resident[-1], measured.peak]
        per_sample = measured.capture_bytes / max(1, measured.samples)
        sizes = [f"{size / MEBIBYTE:.1f}" for size in shown]
        rows.append([title, *sizes, f"{measured.samples / seconds:,.0f}", f"{per_sample:.2f}"])
        verdict, reasons = judge(measured, seconds)
        verdicts.append(f"- {title}: **{verdict}**" + (f" ({'; '.join(reasons)})" if reasons else ""))
    head = ["target", "MiB after a tenth", "three tenths", "all of the time", "peak", "samples/s", "bytes a sample in the file"]
    return [
        *figures.table(head, rows),
        "",
        f"Resident memory while it samples, at {RATE_HZ:,} samples a second; the report at the end, which needs more, is not "
        f"part of it. The goal: flat, and less than {GOAL_BYTES // MEBIBYTE} MiB in {SECONDS_LONG // 60} minutes. Flat is what "
        f"grows by no more than {FLAT_BYTES // MEBIBYTE} MiB after three tenths of the time."
        + (" This is the short run (`bench/run --short memory`)." if context.short else ""),
        "",
        *verdicts,
    ]
