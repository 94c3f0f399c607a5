"""Threads that are always in one of two chains of calls, never in a mixture. A counter in the file given goes on."""

import mmap
import sys
import threading

sys.setswitchinterval(0.0005)

with open(sys.argv[1], "r+b") as file:
    counter = mmap.mmap(file.fileno(), 8)
count = 0


def c1():
    return sum((1, 2, 3))


def b1():
    return c1() + 1


def a1():
    return b1() + 1


def c2():
    return sum((3, 2, 1))


def b2():
    return c2() + 1


def a2():
    return b2() + 1


def loop():
    while True:
        a1()
        a2()


def counting():
    global count
    while True:
        a1()
        a2()
        count += 1
        counter[:] = count.to_bytes(8, "little")


if __name__ == "__main__":
    for number in range(int(sys.argv[2]) - 1):
        threading.Thread(target=loop, daemon=True).start()
    print("ready", flush=True)
    counting()
