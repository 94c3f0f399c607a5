"""Blocks of code that are sampled, and what holds when the last of them has ended."""

import os
from _thread import RLock, get_ident

from strobe._agent import NoAgent


class Switch:
    """Turns the agent on and off. Safe in several threads, in signal handlers, and across a fork."""

    def __init__(self, agent):
        self._agent = agent
        self.has_agent = not isinstance(agent, NoAgent)
        self._lock = RLock()
        self._open = {}  # {thread: how many blocks it has begun that have not ended}
        self._after = None  # whether to sample when no block is open any more; None: no block is
        if self.has_agent:
            os.register_at_fork(after_in_child=self._forget_other_threads)

    def start(self):
        self._say(True)

    def stop(self):
        self._say(False)

    def is_on(self):
        return self._agent.is_sampling()

    def block(self):
        return Block(self)

    def wrap(self, function):
        if not self.has_agent:
            return function
        # Not earlier: it needs inspect, which takes longer to import than all of this.
        from strobe._wrap import wrap

        return wrap(self, function)

    # A signal handler with a block of its own may come between any two steps of these: each order of steps is such that
    # all is then as if it had not.

    def begin(self):
        """Returns what to tell end()."""
        thread = get_ident()
        with self._lock:
            was_sampling = self._agent.is_sampling()
            self._open[thread] = self._open.get(thread, 0) + 1
            if self._after is None:
                self._after = was_sampling
            self._agent.start()
        return thread

    def end(self, thread):
        with self._lock:
            count = self._open.get(thread, 0)
            if count == 0:
                return  # begun by a thread that only the parent of this process has
            if count == 1:
                del self._open[thread]
            else:
                self._open[thread] = count - 1
            self._settle()

    def _say(self, on):
        with self._lock:
            if self._after is not None:
                self._after = on
            (self._agent.start if on else self._agent.stop)()

    def _settle(self):
        if self._open:
            return
        after, self._after = self._after, None
        if after is False:
            self._agent.stop()

    def _forget_other_threads(self):
        """In a child of fork(), which has no thread but the one that forked; another may have held the lock."""
        self._lock = RLock()
        thread = get_ident()
        self._open = {thread: self._open[thread]} if thread in self._open else {}
        self._settle()


class Block:
    """A context manager for use any number of times, nested too."""

    def __init__(self, switch):
        self._switch = switch
        self._begun = []

    def __enter__(self):
        self._begun.append(self._switch.begin())
        return self

    def __exit__(self, *exception):
        self._switch.end(self._begun.pop())
        return False

    def __call__(self, function):
        """`@profile()` is `@profile`."""
        return self._switch.wrap(function)
