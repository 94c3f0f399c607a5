"""Functions that burn CPU time with one thing each, and what of it the kernel says was its own.

usage: bulk.py SECONDS

What native functions return is small, for its release is Python's. Prints {function: {"part": what its time is but for the kernel's, "system": the kernel's share}} as JSON.
"""

import hashlib
import json
import mmap
import os
import re
import resource
import sys
import time
import zlib

NOISE = os.urandom(1 << 16)
NUMBERS = [i * 7919 % 30011 for i in range(30000)]
TEXT = "word " * 5000 + "end"
PATTERN = re.compile(r"(\w+) (\w+)end")
ENCODE = json.JSONEncoder(check_circular=False).encode
ZERO = open("/dev/zero", "rb", buffering=0)
ROOM = bytearray(1 << 20)


def python_numbers():
    x = 0
    for i in range(30000):
        x = (x * 31 + i) & 0xFFFF


def python_strings():
    text = "ab" * 20
    for i in range(5000):
        x = text + "c", text[3:9], text == "b", [i, text], {"a": text}


def native_max():
    for _ in range(4):
        max(NUMBERS)


def native_sum():
    for _ in range(4):
        sum(NUMBERS)


def native_zlib():
    zlib.compress(NOISE, 1)


def native_sha():
    for _ in range(10):
        hashlib.sha256(NOISE)


def native_regex():
    PATTERN.search(TEXT)


def native_json():
    for _ in range(3):
        ENCODE(TEXT)


def native_random():
    os.urandom(1 << 20)


def kernel_read():
    for _ in range(10):
        ZERO.readinto(ROOM)


def kernel_faults():
    memory = mmap.mmap(-1, 1 << 24)
    memory[:: mmap.PAGESIZE]
    memory.close()


def small_reads():
    descriptor = ZERO.fileno()
    for _ in range(1000):
        os.read(descriptor, 4000)


def main():
    parts = {}
    for name, function in list(globals().items()):
        part = name.split("_")[0]
        if part not in ("python", "native", "kernel", "small"):
            continue
        before = resource.getrusage(resource.RUSAGE_THREAD)
        end = time.thread_time() + float(sys.argv[1])
        while time.thread_time() < end:
            function()
        after = resource.getrusage(resource.RUSAGE_THREAD)
        system = after.ru_stime - before.ru_stime
        parts[name] = {"part": part, "system": system / (system + after.ru_utime - before.ru_utime)}
    print(json.dumps(parts))


if __name__ == "__main__":
    main()
