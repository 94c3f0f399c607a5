"""Works under a stack of a known depth, for a time: under_frames.py FRAMES SECONDS cold|warm

`warm` computes; `cold` reads more memory than caches hold, again and again, so that whoever interrupts it finds nothing
there.
"""

import sys
import time

COLD_BYTES = 256 << 20


def compute():
    total = 0
    for number in range(1000):
        total += number * number % 7
    return total


def work(seconds, step):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()


def under(frames, *arguments):
    if frames > 0:
        return under(frames - 1, *arguments)
    return work(*arguments)


frames, seconds, kind = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
step = compute
if kind == "cold":
    data = bytes(COLD_BYTES)
    step = lambda: data.count(b"x")  # noqa: E731
# The module's, work's and the step's frames are of the depth, too.
under(frames - 4, seconds, step)
