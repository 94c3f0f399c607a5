"""Finds the agent that `strobe run` has preloaded into this process."""

_LIBRARY = b"libstrobe-agent.so"


class Agent:
    """The agent's three functions. They are called with the GIL: they take less time than to give it up."""

    def __init__(self, library):
        self.start = library.strobe_agent_start
        self.stop = library.strobe_agent_stop
        self.start.restype = self.stop.restype = None
        self._is_sampling = library.strobe_agent_is_sampling

    def is_sampling(self):
        return self._is_sampling() != 0


class NoAgent:
    """What there is without strobe."""

    @staticmethod
    def start():
        pass

    stop = start

    @staticmethod
    def is_sampling():
        return False


def _is_loaded():
    """Asked of the memory map, because the program may have changed its environment."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            return any(_LIBRARY in line for line in maps)
    except OSError:
        return False


def find_agent():
    if not _is_loaded():
        return NoAgent()
    # Not earlier: it takes longer to import than all of this.
    try:
        import ctypes
    except ImportError:
        import warnings

        warnings.warn("strobe cannot be told anything: this Python has no ctypes", RuntimeWarning, stacklevel=3)
        return NoAgent()
    try:
        # What is preloaded is seen from everywhere, as the program itself is.
        return Agent(ctypes.PyDLL(None))
    except (OSError, AttributeError):
        return NoAgent()
