"""The interpreters to run targets with: the same search as the live tests'."""

import sys

from harness.peers import TOP

sys.path.insert(0, str(TOP / "tests" / "live"))
import interpreters as found_by_tests  # noqa: E402  (its place is known only now)


def pick(*, shared=None, version=None):
    """The newest interpreter with a GIL and no debugging that is (not) built with a shared libpython, and of this
    version if one is given; None when there is none."""
    fitting = [
        interpreter
        for interpreter in found_by_tests.supported()
        if not interpreter.free_threaded
        and not interpreter.debug
        and (shared is None or interpreter.shared == shared)
        and (version is None or interpreter.version[:2] == version)
    ]
    return max(fitting, key=lambda interpreter: interpreter.version, default=None)


def one_of_each():
    """One interpreter without debugging of each version, free-threaded ones included, the oldest first."""
    found = {}
    for interpreter in found_by_tests.supported():
        if not interpreter.debug:
            found[interpreter.minor] = interpreter
    return list(found.values())
