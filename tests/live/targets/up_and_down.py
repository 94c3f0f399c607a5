"""Goes up and down in deep stacks: up_and_down.py DEPTH ROUNDS

Two chains of DEPTH functions each, p and q, ROUNDS times the one, then the other; both end in leaf(). Says "ready" and
runs until it is killed.
"""

import sys


def leaf():
    total = 0
    for number in range(40):
        total += number
    return total


def make_chain(letter, depth):
    """depth functions of their own, each calling the next, the last leaf()."""
    lines = [f"def {letter}{i}():\n    {letter}{i + 1}()\n" for i in range(depth)]
    scope = {f"{letter}{depth}": leaf}
    exec("\n".join(lines), scope)  # noqa: S102
    return scope[f"{letter}0"]


depth, rounds = map(int, sys.argv[1:])
chains = [make_chain(letter, depth) for letter in "pq"]
print("ready", flush=True)
while True:
    for chain in chains:
        for _ in range(rounds):
            chain()
