"""Ends at once, with all that can still run meanwhile: daemon threads, atexit functions, finalisers of what is left."""

import atexit
import sys
import threading


def busy():
    while True:
        sum(range(100))


class Finalised:
    def __init__(self):
        self.itself = self

    def __del__(self):
        sum(range(20000))


def last_words():
    for _ in range(20):
        sum(range(20000))


for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
kept = [Finalised() for _ in range(20)]
atexit.register(last_words)
print("ready", flush=True)
sys.stdin.readline()
