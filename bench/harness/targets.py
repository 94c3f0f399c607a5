"""The programs that are looked at (bench/programs/)."""

import contextlib
import os
import subprocess
import time

from harness.peers import TOP

PROGRAMS = TOP / "bench" / "programs"
SETTLE_LIMIT_S = 10


def thread_states(pid):
    """The state letters of a process's threads."""
    states = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/stat", encoding="utf-8", errors="replace") as file:
            states.append(file.read().rpartition(")")[2].split()[0])
    return states


def wait_until_asleep(pid):
    """Waits until every thread sleeps. A thread that says it is ready is so an instant before it waits."""
    deadline = time.monotonic() + SETTLE_LIMIT_S
    while set(thread_states(pid)) != {"S"}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the threads of {pid} do not come to rest")
        time.sleep(0.01)


@contextlib.contextmanager
def running(python, program, *arguments):
    """A process of bench/programs/PROGRAM, from when it says "ready" on. Gives its Popen; killed at the end."""
    command = [python, str(PROGRAMS / program), *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{' '.join(command)} did not get ready")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
