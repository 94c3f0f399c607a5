"""What the agent takes of the program's memory."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from harness import figures, interpreters, launchers
from harness.targets import PROGRAMS, wait_until_asleep

TITLE = "Memory of the agent in the program"
FRAMES = 20
THREADS = (1, 101)
GOAL_BYTES, GOAL_THREAD_BYTES = 4 << 20, 256 << 10
LIMIT_S = 60


def child_of(pid):
    """The one child of strobe."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            if children:
                return int(children[0])
        time.sleep(0.01)
    raise TimeoutError("strobe starts nothing")


@contextlib.contextmanager
def running(launcher, threads, folder):
    """The process id of the program itself, with all its threads asleep."""
    process = subprocess.Popen(
        launcher.command(PROGRAMS / "waiting_threads.py", threads, FRAMES),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
    )
    pid = process.pid
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the program did not get ready")
        pid = process.pid if launcher.name == "bare" else child_of(process.pid)
        wait_until_asleep(pid)
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def mapped_bytes(pid):
    """(resident bytes of what is strobe's, private resident bytes of all else)"""
    own = private = 0
    path = ""
    for line in Path(f"/proc/{pid}/smaps").read_text(errors="replace").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            path = line.partition("/")[2]
            continue
        is_own = "strobe-agent" in path
        if words[0] == "Rss:" and is_own:
            own += int(words[1]) * 1024
        elif words[0] in ("Private_Clean:", "Private_Dirty:", "Swap:") and not is_own:
            private += int(words[1]) * 1024
    return own, private


def measure(context, interpreter):
    """{threads: (strobe's own mappings, growth of the rest)} in bytes, medians."""
    found = {}
    runs = max(3, context.runs // 6)
    with tempfile.TemporaryDirectory() as folder:
        tools = [launchers.bare(interpreter), launchers.strobe(context, interpreter, folder)]
        for threads in THREADS:
            sizes = {}
            for _ in range(runs):
                for tool in tools:
                    with running(tool, threads, folder) as pid:
                        sizes.setdefault(tool.name, []).append(mapped_bytes(pid))
            bare, watched = (sizes[tool.name] for tool in tools)
            own = figures.Spread.of(own for own, _ in watched).median
            rest = figures.Spread.of(w[1] - b[1] for w, b in zip(watched, bare, strict=True)).median
            found[threads] = (own, rest)
    return found


def run(context):
    rows, verdicts = [], []
    few, many = THREADS
    for interpreter in filter(None, (interpreters.pick(version=version) for version in ((3, 8), (3, 13), (3, 15)))):
        found = measure(context, interpreter)
        per_thread = [(found[many][i] - found[few][i]) / (many - few) for i in (0, 1)]
        fixed = [found[few][i] - few * per_thread[i] for i in (0, 1)]
        cells = [f"{size / 1024:.0f}" for size in (*fixed, *per_thread)]
        rows.append([interpreter.version_text, "", *cells])
        reached = sum(fixed) <= GOAL_BYTES and sum(per_thread) <= GOAL_THREAD_BYTES
        verdicts.append(
            f"- {interpreter.version_text}: goal ≤ {GOAL_BYTES >> 20} MiB + {GOAL_THREAD_BYTES >> 10} KiB a thread: "
            f"**{'reached' if reached else 'not reached'}** ({sum(fixed) / 1024:.0f} KiB + {sum(per_thread) / 1024:.0f} KiB)"
        )
    head = ["Python", "", "KiB: agent", "growth of the rest", "agent, a thread", "growth of the rest, a thread"]
    return [
        *figures.table(head, rows),
        "",
        f"From the kernel's account of a program with {few} and with {many} threads that wait under {FRAMES} frames. The "
        "agent's own: its code, and the memory that it shares with strobe. The rest: private pages of everything else, less "
        "the same program's without strobe.",
        "",
        *verdicts,
    ]
