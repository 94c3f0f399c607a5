"""Says which parts of a program `strobe run` samples; meant for `strobe run --on-demand`, which samples none by itself.

    import strobe

    strobe.start()                  # from here on, in all threads,
    strobe.stop()                   # to here

    with strobe.profile():          # while the block runs; blocks may nest and overlap
        work()

    @strobe.profile                 # while the function runs: a coroutine until it is done, what it awaits included;
    def work(): ...                 # a generator only while it computes its next value

What is said holds for this process, and for children that it forks from then on. Without strobe nothing here does
anything, nor costs anything: a decorated function is the function itself.
"""

from strobe._agent import find_agent as _find_agent
from strobe._blocks import Switch as _Switch

__all__ = ["is_profiling", "profile", "start", "stop"]

_switch = _Switch(_find_agent())


def start():
    """Samples this process from now on."""
    _switch.start()


def stop():
    """Samples this process no more, whatever blocks are open; the next block that begins starts it again."""
    _switch.stop()


def is_profiling():
    """Whether this process is being sampled. False without strobe."""
    return _switch.is_on()


def profile(function=None):
    """`with profile():` samples while the block runs, and leaves it as it was before; `@profile` does so while a
    function runs."""
    return _switch.block() if function is None else _switch.wrap(function)
