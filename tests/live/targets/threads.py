# -*- coding: utf-8 -*-
"""Several threads, each stopped somewhere else, with names of every string kind."""

import threading

import truth

threads = truth.Threads()


def one(stop):
    return stop()


def two(stop):
    return one(lambda: stop())


def three(stop):
    return [two(stop) for _ in range(1)]


class Worker(threading.Thread):
    """A subclass with attributes of its own, which sit where `_name` sits."""

    def __init__(self, stop):
        super().__init__(daemon=True)
        self.one, self.two, self.stop = 1, 2, stop
        self.name = "subclass"

    def run(self):
        one(self.stop)


def main():
    threads.start(one, threads.stop(), name="ascii")
    threads.start(two, threads.stop(), name="Größe")
    threads.start(three, threads.stop(), name="線程")
    threads.start(one, threads.stop(), name="🧵 " + "long " * 100)
    threads.start(one, threads.stop())
    worker = Worker(threads.stop())
    worker.start()
    threads.await_one()
    truth.main_stop()()


if __name__ == "__main__":
    main()
