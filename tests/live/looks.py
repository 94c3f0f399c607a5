"""How far apart the looks at threads were, by the capture itself. A test's bounds for what is seen by chance are made of
that: on a busy machine looks are rare, as the kernel looks at CPU clocks when it ticks, and gives threads that share a
processor turns that are shorter than a tick and begin with one."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import capture_reader  # noqa: E402


class Looks:
    """Those of a finished run."""

    def __init__(self, capture):
        self.weights = {}  # of each look, in seconds; what is partly native is two records
        self.without_frames_s = 0  # CPU time of threads that were so short that no look met them
        self.by_function = {}  # the looks at which it was on the stack
        for record in capture_reader.Capture(capture.read_bytes()).records():
            if record["record"] == "sample":
                self._take(record)

    def _take(self, record):
        look, weight_s = (record["thread"], record["time_ns"]), record["weight_ns"] / 1e9
        self.weights[look] = self.weights.get(look, 0) + weight_s
        if not record["stack"]:
            self.without_frames_s += weight_s
        for function in {frame["function"] for frame in record["stack"]}:
            looks = self.by_function.setdefault(function, {})
            looks[look] = looks.get(look, 0) + weight_s

    def edge_s(self):
        """The most CPU time between two looks at a thread. So much may be charged to a function's neighbour where one follows
        the other: two ticks as a rule."""
        return max(self.weights.values())

    def bound(self, least_s, edges=1):
        """How far off a function's CPU time may be that has so many begins, or as many ends, between two looks."""
        return max(least_s, edges * self.edge_s())

    def effective(self, function):
        """Of so many equal looks the sum would be as uncertain as it is of these (Kish)."""
        weights = self.by_function[function].values()
        return sum(weights) ** 2 / sum(weight**2 for weight in weights)
