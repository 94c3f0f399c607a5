"""Calls functions whose frames are larger than what is read beyond a stack's end: 60, 120, … local variables."""

import os


def make(count):
    names = [f"v{i}" for i in range(count)]
    text = "def large(depth):\n    if depth < 0:\n        " + " = ".join(names) + " = 0\n    return depth and large(depth - 1)\n"
    space = {}
    exec(text, space)
    return space["large"]


functions = [make(60 * i) for i in range(1, 9)]
os.write(1, b"ready\n")
while True:
    for depth, large in enumerate(functions):
        for i in range(20):
            large(depth % 3)
            len("")
