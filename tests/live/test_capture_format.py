"""The capture format, held against a reader that was written from docs/capture-format.md and shares nothing with strobe."""

import json
import random
import subprocess
import sys

import harness
import pytest

sys.path.insert(0, str(harness.HERE.parent))
import capture_reader  # noqa: E402

TOOLS = harness.STROBE.parent / "tests" / "tools"
START_NS = 5_000_000_000_000


def frame(chooser):
    line = chooser.randrange(1, 300)
    python = chooser.random() < 0.9
    return {
        "kind": 0 if python else chooser.randrange(1, 7),
        "function": chooser.choice(["f", "g", "<lambda>", "größe", "名前"]),
        "qualname": chooser.choice([None, "C.f", "outer.<locals>.g"]),
        "file": chooser.choice(["/x.py", "/lib/y.py"]) if python else None,
        "position": [line, line + 1, 0, 70_000] if chooser.random() < 0.5 else [line, None, None, None],
        "first_line": chooser.choice([None, 1, 2**30]),
    }


class Story:
    """A made-up run of a few processes with threads that come and go: the records that tell of it."""

    def __init__(self, seed, samples, tick_ns):
        self.chooser = random.Random(seed)
        self.tick_ns = tick_ns
        self.now_ns = START_NS
        self.stacks = [[frame(self.chooser) for _ in range(self.chooser.randrange(12))] for _ in range(40)]
        self.threads = []
        self.thread_count = 0
        self.records = [{"record": "fact", "key": "strobe", "value": "0.1.0"}]
        for number in (0, 7):
            self.process(number)
        while sum(record["record"] == "sample" for record in self.records) < samples:
            self.step()
        self.records.append({"record": "counters", "number": 0, "taken": 5, "missed": 1, "inconsistent": 2, "errors": 3})
        ended = [thread for thread, process in self.threads if process == 7]
        # Threads end with their process, the youngest first.
        self.records += [{"record": "thread_end", "thread": t, "time_ns": 2**60} for t in reversed(ended)]
        self.records.append({"record": "process_end", "number": 7, "time_ns": 2**60, "status": -1})

    def process(self, number):
        self.records.append(
            {
                "record": "process", "number": number, "pid": 40 + number, "parent_pid": number, "version": 0x030F00F0,
                "flags": number and 1, "mode": number % 3, "origin": 0, "rate_mhz": 1_000_000,
                "start_unix_ns": 2**60, "start_ns": START_NS, "command": ["python3", "x y.py", ""],
                "libraries": ["/opt/lib"] * number,
            }  # fmt: skip
        )

    def thread(self, thread, process):
        self.records.append(
            {
                "record": "thread", "thread": thread, "process": process, "native_id": 1000 + thread,
                "thread_id": 2**47 + thread, "interpreter": self.chooser.randrange(-1, 3),
                "name": self.chooser.choice(["", "MainThread", "wörker"]),
            }  # fmt: skip
        )

    def step(self):
        chooser = self.chooser
        if len(self.threads) < 2 or chooser.random() < 0.02:
            self.thread_count += 1
            self.threads.append((self.thread_count, chooser.choice([0, 7])))
            self.thread(*self.threads[-1])
        elif chooser.random() < 0.02:
            thread, _ = self.threads.pop(chooser.randrange(len(self.threads)))
            self.records.append({"record": "thread_cpu", "thread": thread, "cpu_ns": chooser.randrange(2**40)})
            self.records.append({"record": "thread_end", "thread": thread, "time_ns": self.now_ns})
        elif chooser.random() < 0.02:
            self.thread(*chooser.choice(self.threads))
        elif chooser.random() < 0.05:
            self.event()
        elif chooser.random() < 0.05:
            self.change()
        elif chooser.random() < 0.05:
            self.footprint()
        else:
            self.look()

    def event(self):
        values = {str(measure): self.chooser.randrange(2**62) for measure in self.chooser.sample(range(100), 5)}
        thread, _ = self.chooser.choice(self.threads)
        self.records.append(
            {"record": "event", "thread": thread, "time_ns": self.now_ns, "values": values, "stack": self.stack()}
        )

    def change(self):
        values = {str(m): self.chooser.randrange(-(2**62), 2**62) for m in self.chooser.sample(range(100), 5)}
        self.records.append(
            {"record": "change", "number": 0, "time_ns": self.now_ns, "values": values, "stack": self.stack()}
        )

    def footprint(self):
        chooser = self.chooser
        names = "footprint_bytes peak_bytes peak_ns inherited_bytes stride_bytes lost_records resident_bytes execs".split()
        steps = [chooser.choice([0, 1, -3, 10**6]) for _ in range(chooser.choice([0, 1, 7, 1024]))]
        points = [
            [self.now_ns + self.tick_ns * sum(steps[: i + 1]), chooser.randrange(2**57)] for i in range(len(steps))
        ]
        self.records.append(
            {
                "record": "footprint", "number": 0, **{name: chooser.randrange(2**57) for name in names},
                "time_ns": self.now_ns, "points": points,
            }  # fmt: skip
        )

    def stack(self):
        return self.chooser.choice(self.stacks)

    def look(self):
        chooser = self.chooser
        # Now and then time stands still or runs backwards, as between threads that sample themselves.
        self.now_ns += self.tick_ns * chooser.choice([0, 1, 50, -3, 10**9])
        for thread, _ in self.threads:
            if chooser.random() < 0.9:
                self.records.append(
                    {
                        "record": "sample", "thread": thread, "time_ns": self.now_ns,
                        "weight_ns": self.tick_ns * chooser.choice([0, 50, 51, 2**20]), "run": chooser.randrange(3),
                        "gil": chooser.randrange(4), "collecting": chooser.random() < 0.1, "stack": self.stack(),
                    }  # fmt: skip
                )


def write(path, records, **options):
    lines = [{"record": "options", **options}, *records]
    subprocess.run(
        [TOOLS / "write_capture", path], input="\n".join(map(json.dumps, lines)), text=True, check=True, timeout=60
    )


def show(path):
    """What strobe's own reader says, and its exit status."""
    shown = subprocess.run([TOOLS / "show_capture", path], stdout=subprocess.PIPE, text=True, timeout=60)
    return [json.loads(line) for line in shown.stdout.splitlines()], shown.returncode


def read(path):
    capture = capture_reader.Capture(path.read_bytes())
    records = list(capture.records())
    assert capture.ended and records[-1]["record"] == "end"
    return records[:-1], records[-1]


def without_repeats(records):
    """Without what each epoch tells again."""
    kept, last = [], {}
    for record in records:
        key = {"fact": "key", "process": "number", "thread": "thread"}.get(record["record"])
        if key is None:
            kept.append(record)
        elif last.get((record["record"], record[key])) != record:
            last[(record["record"], record[key])] = record
            kept.append(record)
    return kept


def weights(records):
    sums = {}
    for record in records:
        if record["record"] == "sample":
            sums[record["thread"]] = sums.get(record["thread"], 0) + record["weight_ns"]
    return sums


def without_weights(records):
    return [{key: value for key, value in record.items() if key != "weight_ns"} for record in records]


@pytest.mark.parametrize("tick_ns", [1, 1000])
@pytest.mark.parametrize("options", [{}, {"chunk_bytes": 300}, {"max_stacks": 30, "flush_period_ns": 10**6}], ids=str)
def test_what_was_written_is_read_by_both_readers(tmp_path, options, tick_ns):
    story = without_repeats(Story(seed=1, samples=3000, tick_ns=tick_ns).records)
    path = tmp_path / "x.strobe"
    write(path, [*story, {"record": "end"}], tick_ns=tick_ns, **options)
    told, end = read(path)
    shown, status = show(path)
    assert status == 0
    assert shown == told
    assert without_weights(without_repeats(told)) == without_weights(story)
    # Single weights may be rounded by a tick either way; the rest is carried over.
    written, got = weights(story), weights(told)
    assert written.keys() == got.keys()
    assert all(abs(written[thread] - got[thread]) <= 2 * tick_ns for thread in written)
    assert end["samples"] == sum(record["record"] == "sample" for record in story)


def test_what_a_dead_writer_left_is_read(tmp_path):
    story = Story(seed=2, samples=1000, tick_ns=1000).records
    path = tmp_path / "x.strobe"
    write(path, story, tick_ns=1000, chunk_bytes=2000)
    shown, status = show(path)
    samples = [record for record in shown if record["record"] == "sample"]
    assert status == 6
    assert 0 < len(samples) < 1000
    assert without_weights(without_repeats(shown)) == without_weights(without_repeats(story))[: len(without_repeats(shown))]
