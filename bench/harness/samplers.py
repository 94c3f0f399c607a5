"""Running samplers of running programs: strobe and its peers, each asked for a rate, and what it says it took."""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from harness import peers

# A target that had less of a processor than this was no running target: a starved one stands still under the eye.
TRULY_RUNNING = 0.93


@dataclass(frozen=True)
class Span:
    """What one sampler did to one target in one span of time."""

    samples: int
    wall_s: float  # of the sampler, start to end
    cpu_s: float
    target_share: float  # of a processor, that the target had meanwhile
    dropped: int = 0

    @property
    def runs_truly(self):
        return self.target_share >= TRULY_RUNNING


def target_cpu_s(pid):
    """CPU time of a process's threads, exact to a tick."""
    total_ns = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
            total_ns += int(file.read().split()[0])
    return total_ns / 1e9


def cores():
    """(the target's processors, the sampler's): one of its own for the target, if there are two."""
    every = sorted(os.sched_getaffinity(0))
    return ({every[-1]}, set(every[:-1])) if len(every) > 1 else (set(every), set(every))


def pin_target(pid):
    for tid in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(tid), cores()[0])


class TookTooLong(Exception):
    pass


def run_beside(command, target_pid, stderr=subprocess.STDOUT, limit_s=300):
    """(output, wall_s, cpu_s, the target's share of a processor) of a command that looks at the target. One that does not
    end is killed, and TookTooLong."""
    start_s, start_cpu_s = time.monotonic(), target_cpu_s(target_pid)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=stderr,
            preexec_fn=lambda: os.sched_setaffinity(0, cores()[1]),
        )
        killer = threading.Timer(limit_s, process.kill)
        killer.start()
        _, wait_status, usage = os.wait4(process.pid, 0)
        # While it is set, nobody kills who may have the process's number next.
        process.returncode = os.waitstatus_to_exitcode(wait_status)
        killer.cancel()
        wall_s = time.monotonic() - start_s
        share = (target_cpu_s(target_pid) - start_cpu_s) / wall_s
        if wall_s >= limit_s:
            raise TookTooLong(f"{Path(command[0]).name} did not end within {limit_s} s")
        output.seek(0)
        text = output.read().decode(errors="replace")
    return text, wall_s, usage.ru_utime + usage.ru_stime, share


def strobe(context, pid, rate_hz, duration_s, *options):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [context.strobe, "attach", "-r", str(rate_hz), "-d", str(duration_s), "--quiet", *options]
        command += ["--capture", f"{folder}/capture.strobe", "-f", "json", "-o", str(report), str(pid)]
        _, wall_s, cpu_s, share = run_beside(command, pid)
        taken = json.loads(report.read_text(encoding="utf-8"))["samples"]
    return Span(taken["taken"], wall_s, cpu_s, share, taken["inconsistent"] + taken["errors"])


def cpython(interpreter, pid, rate_hz, duration_s):
    with tempfile.TemporaryDirectory() as folder:
        command = [interpreter.path, "-m", "profiling.sampling", "attach", "-a", "-r", str(rate_hz)]
        command += ["-d", str(duration_s), "--binary", "-o", f"{folder}/profile", str(pid)]
        text, wall_s, cpu_s, share = run_beside(command, pid)
    return Span(found(r"\((\d+) samples\)", text), wall_s, cpu_s, share)


def py_spy(pid, rate_hz, duration_s, *options):
    with tempfile.TemporaryDirectory() as folder:
        command = [peers.find("py-spy"), "record", "-r", str(rate_hz), "-d", str(duration_s), *options]
        command += ["-f", "raw", "-o", f"{folder}/profile", "--pid", str(pid)]
        text, wall_s, cpu_s, share = run_beside(command, pid)
    return Span(found(r"Samples: (\d+)", text), wall_s, cpu_s, share, found(r"Errors: (\d+)", text))


def austin(pid, rate_hz, duration_s):
    with tempfile.TemporaryDirectory() as folder:
        command = [peers.find("austin"), "-i", str(max(1, round(1e6 / rate_hz))), "-x", str(duration_s)]
        text, wall_s, cpu_s, share = run_beside([*command, "-o", f"{folder}/profile", "-p", str(pid)], pid)
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    return Span(found(r"Long sampling rate : \d+/(\d+)", plain), wall_s, cpu_s, share)


def found(pattern, text):
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def of_target(context, interpreter, duration_s):
    """{name: function(pid, rate_hz, duration_s) -> Span} of the samplers that may know this interpreter."""
    tools = {"strobe": lambda pid, rate_hz, seconds=duration_s: strobe(context, pid, rate_hz, seconds)}
    if interpreter.at_least(3, 15):
        name = "CPython's profiling.sampling --binary"
        # It counts in microseconds.
        tools[name] = lambda pid, rate_hz, seconds=duration_s: cpython(interpreter, pid, min(rate_hz, 1_000_000), seconds)
    if peers.find("py-spy"):
        # py-spy takes as many samples as were asked for, however long that takes: it is asked for what it can do.
        tools["py-spy"] = lambda pid, rate_hz, seconds=duration_s: py_spy(pid, min(rate_hz, 2000), seconds)
    if peers.find("austin"):
        tools["austin"] = lambda pid, rate_hz, seconds=duration_s: austin(pid, min(rate_hz, 50000), seconds)
    return tools


def spans(tool, pid, rate_hz, wanted, attempts):
    """(spans that count, how many were tried): those with samples and a target that truly ran; if there are too few of
    them, the best of the others, which is then for the reader to be told."""
    counting, others = [], []
    for _ in range(attempts):
        span = tool(pid, rate_hz)
        if span.samples == 0:
            return [], 1
        (counting if span.runs_truly else others).append(span)
        if len(counting) == wanted:
            break
    tried = len(counting) + len(others)
    if not counting:
        others.sort(key=lambda span: -span.target_share)
        return others[: max(1, wanted // 2)], tried
    return counting, tried
