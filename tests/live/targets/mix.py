"""Two threads that burn time in functions of known shares, and one that waits; each function's time is measured here.

Begins when a line comes on standard input, goes on until the main thread has used the CPU time of the first argument,
then says what it measured, and ends."""

import json
import os
import sys
import threading
import time

SECONDS = float(sys.argv[1])
spent = {}
finished = threading.Event()


def spin(count):
    total = 0
    for i in range(count):
        total += i * i
    return total


def one():
    total = 0
    for i in range(10000):
        total += i * i
    return total


def two():
    total = 0
    for i in range(30000):
        total += i * i
    return total


def three():
    # Not innermost itself, most of the time.
    for _ in range(60):
        spin(1000)


def other():
    total = 0
    for i in range(20000):
        total += i * i
    return total


def measure(function):
    sums = spent.setdefault(function.__name__, [0, 0])
    cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
    function()
    sums[0] += time.thread_time_ns() - cpu
    sums[1] += time.perf_counter_ns() - wall


def burn_beside(told):
    begin.wait()
    cpu = time.thread_time_ns()
    while not finished.is_set():
        measure(other)
    told["cpu_ns"] = time.thread_time_ns() - cpu


def sleep():
    finished.wait()


begin = threading.Event()
beside = {}
burner = threading.Thread(target=burn_beside, args=(beside,), name="burner")
sleeper = threading.Thread(target=sleep, name="sleeper", daemon=True)
burner.start()
sleeper.start()
told = {"native_id": threading.get_native_id(), "burner": burner.native_id, "sleeper": sleeper.native_id}
os.write(1, json.dumps(told).encode() + b"\n")
sys.stdin.readline()
begin.set()
cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
while time.thread_time_ns() - cpu < SECONDS * 1e9:
    measure(one)
    measure(two)
    measure(three)
told["cpu_ns"], told["wall_ns"] = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
finished.set()
burner.join()
told["spent"], told["beside"] = spent, beside
os.write(1, json.dumps(told).encode() + b"\n")
# No more work: the interpreter's own end would be sampled, too.
os._exit(0)
