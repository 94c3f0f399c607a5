"""Threads that wait, each under a stack of a known depth: waiting_threads.py THREADS FRAMES

Each frame is a function of its own, in a module written for the purpose, and calls none but the next: nothing is saved
by knowing one function already, except from one thread to the next, as it is with real workers. Prints "ready" when all
threads have arrived; then waits until it is killed.
"""

import queue
import sys
import tempfile
import threading
from pathlib import Path

# Frames of threading.Thread under a thread's own function.
FRAMES_OF_THREAD = 3

STEP = '''
def step_{number}(remaining, arrivals, gate):
    """Step {number} of the chain."""
    label = f"step {{remaining}} of {number}"
    if remaining > 1:
        return step_{next}(remaining - 1, arrivals, gate) or label
    arrivals.put(label)
    gate()
'''


def make_chain(folder, length):
    source = "".join(STEP.format(number=number, next=number + 1) for number in range(length))
    (Path(folder) / "chain.py").write_text(source, encoding="utf-8")
    sys.path.insert(0, folder)
    import chain  # noqa: E402  (it did not exist before)

    return chain.step_0


# At module level, so that the main thread has one frame under its chain.
threads, frames = int(sys.argv[1]), int(sys.argv[2])
lock = threading.Lock()
lock.acquire()
arrivals = queue.SimpleQueue()
with tempfile.TemporaryDirectory() as folder:
    first_step = make_chain(folder, frames)
    for _ in range(threads - 1):
        threading.Thread(target=first_step, args=(frames - FRAMES_OF_THREAD, arrivals, lock.acquire), daemon=True).start()
    for _ in range(threads - 1):
        arrivals.get()
    print("ready", flush=True)
    first_step(frames - 1, arrivals, lock.acquire)
