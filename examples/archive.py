#!/usr/bin/env python3
"""A small archive: issues of a newspaper are written, indexed word by word, packed, put on disk and sent to a slow mirror.

Each of its steps costs something else: Python, C, the kernel, waiting. It takes about three seconds.

    strobe run examples/archive.py
"""

import collections
import hashlib
import os
import queue
import tempfile
import threading
import time
import zlib

WORDS = ("parliament", "flood", "penguin", "record", "strike", "comet", "bakery", "derby", "verdict", "orchestra")
ISSUES = 30


def write_issue(number):
    """Text by a small linear congruential generator: all of it is Python."""
    state, words = number, []
    for _ in range(60000):
        state = (state * 1103515245 + 12345) % 2**31
        words.append(WORDS[(state >> 8) % len(WORDS)])
    return words


def index(words):
    counts = collections.Counter(words)
    return sorted(words), counts


def pack(words):
    text = " ".join(words).encode()
    packed = zlib.compress(text, 3)
    return hashlib.sha256(packed).hexdigest(), packed


def store(folder, digest, packed):
    """With room for what is to come: disks like large blocks."""
    with open(os.path.join(folder, digest), "wb", buffering=0) as file:
        file.write(packed.ljust(8 << 20, b"\0"))


def mirror(inbox):
    """Another machine, far away."""
    while inbox.get() is not None:
        time.sleep(0.02)
        inbox.task_done()


def main():
    inbox = queue.Queue(maxsize=1)
    threading.Thread(target=mirror, args=(inbox,), name="mirror", daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ISSUES):
            words = write_issue(number)
            index(words)
            digest, packed = pack(words)
            store(folder, digest, packed)
            inbox.put(digest)
    inbox.join()
    print(f"{ISSUES} issues archived")


if __name__ == "__main__":
    main()
