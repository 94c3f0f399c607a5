"""A made-up capture of a run whose memory is known at every moment, and of a process beside it that was attached to."""

import json
import subprocess

import made_captures as captures
from made_captures import MS, START_NS, WRITE_CAPTURE, frame

MIB = 1 << 20
TICKS, TICK_NS = 100, 50 * MS
SOURCE = """\
kept, cache = [], {}


def leak():
    kept.append(bytearray(1 << 20))


def fill():
    cache.append(bytearray(1 << 20))


def brief():
    return len(bytearray(64 << 20))


while True:
    leak(), fill(), brief()
"""
LEAK, CACHE, BRIEF = 5, 9, 13
MEASURES = {"alloc_bytes": 8, "alloc_count": 9, "peak_bytes": 10, "live_bytes": 11, "live_count": 17}
MEASURES |= {"alloc_variance": 18, "peak_variance": 19, "live_variance": 20}
PEAK_TICK = 60
# What a line may be off: its variance, in KiB².
VARIANCE = 512 * 512


def live_mib(line, tick):
    """What each line holds after so many ticks."""
    return {LEAK: tick, CACHE: min(tick, 20), BRIEF: 64 if tick == PEAK_TICK else 0}[line]


class MemoryRun:
    def __init__(self, folder):
        self.file = str(folder / "service.py")
        (folder / "service.py").write_text(SOURCE)
        self.run = captures.Run(["python3", "service.py"])
        self.main = self.run.thread("MainThread")
        module = frame("<module>", self.file, 17, 1)
        names = {LEAK: "leak", CACHE: "fill", BRIEF: "brief"}
        self.stacks = {line: [module, frame(name, self.file, line, line - 1)] for line, name in names.items()}
        for line, stack in self.stacks.items():
            self.run.spend(self.main, stack, python=20 * MS)
        for tick in range(1, TICKS + 1):
            self._tick(tick)
        self._attached()

    def _tick(self, tick):
        now_ns = START_NS + tick * TICK_NS
        for line, stack in self.stacks.items():
            grown = live_mib(line, tick) - live_mib(line, tick - 1)
            if grown > 0:
                values = {"alloc_bytes": grown * MIB, "alloc_count": grown, "alloc_variance": VARIANCE}
                self._put("event", now_ns, values, thread=self.main, stack=stack)
            values = {"live_bytes": grown * MIB, "live_count": grown}
            if tick == 1:
                values["peak_bytes"] = live_mib(line, PEAK_TICK) * MIB
                values |= {"live_variance": VARIANCE, "peak_variance": 4 * VARIANCE}
            values = {name: amount for name, amount in values.items() if amount}
            if values:
                self._put("change", now_ns, values, number=0, stack=stack)
        bytes_now = sum(live_mib(line, tick) for line in self.stacks) * MIB
        self.run.records.append(
            {
                "record": "footprint", "number": 0, "time_ns": now_ns, "footprint_bytes": bytes_now,
                "peak_bytes": self.peak_bytes() if tick >= PEAK_TICK else bytes_now,
                "peak_ns": START_NS + PEAK_TICK * TICK_NS, "inherited_bytes": 0, "stride_bytes": 512 << 10,
                "lost_records": 0, "points": [[now_ns, bytes_now]],
            }  # fmt: skip
        )

    def _put(self, record, now_ns, values, **more):
        numbers = {str(MEASURES[name]): amount for name, amount in values.items()}
        self.run.records.append({"record": record, "time_ns": now_ns, "values": numbers, **more})

    def _attached(self):
        """A process that was looked at from outside: half of the time it waited."""
        number = self.run.process(["python3", "other.py"])
        self.run.records[-1] |= {"mode": 0, "origin": 0}
        thread = self.run.thread("MainThread", number)
        stack = [frame("f", "/srv/other.py", 3, 1)]
        for tick in range(1, 41):
            self.run.records.append(
                {
                    "record": "sample", "thread": thread, "stack": stack, "time_ns": START_NS + tick * MS,
                    "weight_ns": MS, "run": 1 + tick % 2, "gil": 0, "collecting": False,
                }  # fmt: skip
            )

    def peak_bytes(self):
        return sum(live_mib(line, PEAK_TICK) for line in self.stacks) * MIB

    def write(self, path):
        return self.run.write(path)


def write_records(path, records):
    """A capture of one process that was run, with these records."""
    run = captures.Run(["python3", "x.py"])
    run.thread("MainThread")
    lines = [{"record": "options", "tick_ns": 1}, *run.records, *records, {"record": "end"}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    subprocess.run([WRITE_CAPTURE, path], input=text.encode(), check=True, timeout=60)
    return path
