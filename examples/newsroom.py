#!/usr/bin/env python3
"""A small newsroom: feeds are parsed by a generator, stories are scored by worker threads, an editor waits for them.

It runs until its standard input ends, and says so when all of its threads are at work:

    python3 examples/newsroom.py
    at work: 3 reporters, 1 editor (end of input or Ctrl-C stops it)

In another terminal: strobe dump PID
"""

import queue
import sys
import threading
from dataclasses import dataclass

WORDS = ("parliament", "flood", "penguin", "record", "strike", "comet", "bakery", "derby", "verdict", "orchestra")
REPORTERS = ("Nellie", "Günter", "Ida")


@dataclass
class Story:
    headline: str
    length: int
    score: float = 0.0


def headlines(seed):
    """Endless headlines, from a small linear congruential generator."""
    state = seed
    while True:
        state = (state * 1103515245 + 12345) % 2**31
        yield " ".join(WORDS[(state >> shift) % len(WORDS)] for shift in (3, 9, 15))


def stories(seed):
    for number, headline in enumerate(headlines(seed)):
        yield Story(headline, length=200 + number % 700)


class Scorer:
    """Rates a story by how well its words go with each other."""

    def __init__(self):
        self.seen = {}

    def distance(self, left, right):
        """Levenshtein's edit distance, the plain way: something to keep a processor busy."""
        previous = list(range(len(right) + 1))
        for row, a in enumerate(left, 1):
            current = [row]
            for column, b in enumerate(right, 1):
                current.append(min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (a != b)))
            previous = current
        return previous[-1]

    def score(self, story):
        def novelty(word):
            self.seen[word] = self.seen.get(word, 0) + 1
            return 1 / self.seen[word]

        words = story.headline.split()
        spread = sum(self.distance(a, b) for a in words for b in words)
        return spread + sum(novelty(word) for word in words)


class Newsroom:
    def __init__(self):
        self.desk = queue.Queue(maxsize=100)
        self.closing = threading.Event()
        self.at_work = threading.Barrier(len(REPORTERS) + 2)
        self.front_page = Story("nothing yet", 0)

    def report(self, seed):
        scorer = Scorer()
        self.at_work.wait()
        for story in stories(seed):
            if self.closing.is_set():
                return
            story.score = scorer.score(story)
            try:
                self.desk.put_nowait(story)
            except queue.Full:
                pass  # old news

    def edit(self):
        self.at_work.wait()
        while True:
            story = self.desk.get()
            if story is None:
                return
            if story.score > self.front_page.score:
                self.front_page = story

    def open(self):
        for seed, name in enumerate(REPORTERS):
            threading.Thread(target=self.report, args=(seed,), name=name, daemon=True).start()
        threading.Thread(target=self.edit, name="editor", daemon=True).start()
        self.at_work.wait()

    def close(self):
        self.closing.set()


def wait_for_closing_time():
    try:
        sys.stdin.read()
    except KeyboardInterrupt:
        pass


def main():
    newsroom = Newsroom()
    newsroom.open()
    print(f"at work: {len(REPORTERS)} reporters, 1 editor (end of input or Ctrl-C stops it)", flush=True)
    wait_for_closing_time()
    newsroom.close()
    print(f"front page: {newsroom.front_page}")


if __name__ == "__main__":
    main()
