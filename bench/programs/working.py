"""Threads that work, and say how much: working.py DEPTH WORKING WAITING FILE

WORKING threads compute under DEPTH frames each, by turns if there is a GIL; WAITING more threads wait under as many. The
first 8 bytes of FILE for each working thread are how many rounds it has done. Prints "ready" when all are at it, and runs
until it is killed.
"""

import mmap
import sys
import threading


def one_round():
    total = 0
    for number in range(100):
        total += number * number % 7
    return total


def work(counts, index):
    while True:
        one_round()
        counts[index] += 1


def under(frames, function, arguments):
    if frames > 0:
        return under(frames - 1, function, arguments)
    return function(*arguments)


def start(depth, function, *arguments):
    # Three frames of threading, and the function's own.
    threading.Thread(target=under, args=(depth - 5, function, arguments), daemon=True).start()


depth, working, waiting = map(int, sys.argv[1:4])
with open(sys.argv[4], "w+b") as file:
    file.truncate(8 * working)
    counts = memoryview(mmap.mmap(file.fileno(), 8 * working)).cast("Q")
lock = threading.Lock()
lock.acquire()
for _ in range(waiting):
    start(depth, lock.acquire)
for index in range(1, working):
    start(depth, work, counts, index)
print("ready", flush=True)
# The main thread has the module's frame, under()'s and the function's.
under(depth - 3, work, (counts, 0))
