"""Burns and waits, each kind in a function of its own, and says what that cost by the thread's own clocks.

usage: measured.py SECONDS [KIND ...]

Each kind has two turns of SECONDS of CPU or waiting. Prints {function: {"cpu_s", "system_s", "wait_s"}} as JSON, and the
CPU time of the whole process.
"""

import hashlib
import json
import os
import resource
import select
import socket
import sys
import threading
import time
import zlib

NOISE = os.urandom(1 << 16)
NUMBERS = list(range(3000))
ZERO = open("/dev/zero", "rb", buffering=0)
ROOM = bytearray(1 << 20)
PIPE = os.pipe()
SOCKETS = socket.socketpair()
TAKEN = threading.Lock()
TAKEN.acquire()


def burn_python(clock, seconds):
    end = clock() + seconds
    while clock() < end:
        x = 0
        for i in range(3000):
            x = (x * 31 + i) & 0xFFFF


def burn_sorted(clock, seconds):
    end = clock() + seconds
    while clock() < end:
        sorted(NUMBERS, key=None, reverse=True)


def burn_zlib(clock, seconds):
    end = clock() + seconds
    while clock() < end:
        zlib.compress(NOISE, 1)


def burn_hash(clock, seconds):
    end = clock() + seconds
    while clock() < end:
        hashlib.sha256(NOISE)


def burn_kernel(clock, seconds):
    end = clock() + seconds
    while clock() < end:
        ZERO.readinto(ROOM)


def wait_sleep(clock, seconds):
    time.sleep(seconds)


def wait_select(clock, seconds):
    select.select([PIPE[0]], [], [], seconds)


def wait_socket(clock, seconds):
    SOCKETS[0].settimeout(seconds)
    try:
        SOCKETS[0].recv(1)
    except socket.timeout:
        pass


def wait_lock(clock, seconds):
    TAKEN.acquire(timeout=seconds)


def wait_often(clock, seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        time.sleep(0.002)


BURNING = [burn_python, burn_sorted, burn_zlib, burn_hash, burn_kernel]
WAITING = [wait_sleep, wait_select, wait_socket, wait_lock, wait_often]
KINDS = BURNING + WAITING


def measured(spent, kind, seconds):
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    wall, cpu = time.perf_counter(), time.thread_time()
    kind(time.thread_time, seconds)
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    system = resource.getrusage(resource.RUSAGE_THREAD).ru_stime - usage.ru_stime
    total = spent.setdefault(kind.__name__, {"cpu_s": 0.0, "system_s": 0.0, "wait_s": 0.0})
    total["cpu_s"] += cpu
    total["system_s"] += system
    total["wait_s"] += wall - cpu


def main():
    seconds = float(sys.argv[1])
    kinds = [kind for kind in KINDS if not sys.argv[2:] or kind.__name__ in sys.argv[2:]]
    spent = {}
    for _ in range(2):
        for kind in kinds:
            measured(spent, kind, seconds)
    print(json.dumps({"functions": spent, "process_cpu_s": time.process_time()}))


if __name__ == "__main__":
    main()
