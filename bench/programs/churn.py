"""Small objects that come and go: lists of slotted instances, dicts of str.

usage: churn.py ROUNDS SECONDS RESULT

Does so many rounds, or, when ROUNDS is 0, as many as take SECONDS. Writes {"loops", "wall_s", "cpu_s"} of the rounds alone to
the file RESULT.
"""

import json
import sys
import time
from pathlib import Path

OBJECTS = 100


class Point:
    __slots__ = ("left", "name", "right")

    def __init__(self, left, name, right):
        self.left = left
        self.name = name
        self.right = right


def run_round():
    points = [Point(number, str(number), None) for number in range(OBJECTS)]
    names = {str(number): number for number in range(OBJECTS // 2)}
    return len(points) + len(names)


def churn(rounds, end):
    done = 0
    while done < rounds or (rounds == 0 and time.perf_counter() < end):
        run_round()
        done += 1
    return done


def main():
    rounds, seconds, result = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    wall, cpu = time.perf_counter(), time.process_time()
    loops = churn(rounds, wall + seconds)
    spent = {"loops": loops, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    Path(result).write_text(json.dumps(spent))


if __name__ == "__main__":
    main()
