"""Small objects that come and go: lists of slotted instances, dicts of str. In several threads, if wanted.

usage: churn.py ROUNDS SECONDS THREADS RESULT

Each thread, or the main one when THREADS is 0, does so many rounds, or, when ROUNDS is 0, as many as take SECONDS. Writes {"loops", "wall_s", "cpu_s"} of the
rounds alone to the file RESULT, `loops` of one thread.
"""

import json
import sys
import threading
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
    rounds, seconds, count, result = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    wall, cpu = time.perf_counter(), time.process_time()
    done = [churn(rounds, wall + seconds)] if count == 0 else []
    threads = [threading.Thread(target=lambda: done.append(churn(rounds, wall + seconds))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = {"loops": min(done), "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    Path(result).write_text(json.dumps(spent))


if __name__ == "__main__":
    main()
