"""Captures as `strobe run` makes them, without an agent: CPU time in its parts, waiting, memory, native functions.

A Run is told what was spent where; it makes the records of tests/tools/write_capture of it, and knows the sums."""

import json
import os
import random
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

from reports import BUILD

STROBE = Path(os.environ.get("STROBE") or BUILD / "strobe").resolve()
WRITE_CAPTURE = BUILD / "tests" / "tools" / "write_capture"
START_NS = 5_000_000_000_000
MS = 1_000_000
MEASURES = {
    name: number
    for number, name in enumerate(
        "samples wall cpu python native kernel wait gil_wait alloc_bytes alloc_count peak_bytes live_bytes python_bytes"
        " copy_bytes gpu gpu_bytes temporary_bytes live_count".split()
    )
}
PARTS = ("python", "native", "kernel")


def frame(function, file, line, first_line, qualname=None):
    return {
        "kind": 0, "function": function, "qualname": qualname or function, "file": file,
        "position": [line, None, None, None], "first_line": first_line,
    }  # fmt: skip


def native_frame(function, library):
    return {
        "kind": 1, "function": function, "qualname": None, "file": library,
        "position": [None, None, None, None], "first_line": None,
    }  # fmt: skip


class Run:
    """What one `strobe run` saw. Amounts of time are nanoseconds."""

    def __init__(self, command, seed=1, rate_hz=1000):
        self.chance = random.Random(seed)
        self.rate_hz = rate_hz
        self.records = []
        self.processes = []
        self.threads = []
        self.now = START_NS
        self.spent = []  # (thread, stack, Counter of measures)
        self.process(command)

    def process(self, command, pid=4242, parent_pid=0):
        number = len(self.processes)
        self.processes.append({"pid": pid + number, "command": command})
        self.records.append(
            {
                "record": "process", "number": number, "pid": pid + number, "parent_pid": parent_pid,
                "version": 0x030E00F0, "flags": 0, "mode": 1, "origin": 1, "rate_mhz": self.rate_hz * 1000,
                "start_unix_ns": 1_790_000_000_000_000_000, "start_ns": START_NS, "command": command, "libraries": [],
            }  # fmt: skip
        )
        return number

    def thread(self, name, process=0):
        number = len(self.threads) + 1
        self.threads.append({"name": name, "process": process, "native_id": 4242 + number - 1})
        self.records.append(
            {
                "record": "thread", "thread": number, "process": process, "native_id": 4242 + number - 1,
                "thread_id": 2**47 + number, "interpreter": 0, "name": name,
            }  # fmt: skip
        )
        return number

    def spend(self, thread, stack, function=None, library=None, **amounts):
        """`stack`: frames, outermost first. With `library` the native part stands in that function; the others do not.
        Amounts: python, native, kernel, wait, gil_wait in ns; alloc_bytes and so on."""
        for part in PARTS:
            native = part == "native" and library is not None
            path = [*stack, native_frame(function, library)] if native else stack
            left = amounts.pop(part, 0)
            while left > 0:
                weight = min(left, self.chance.randrange(3 * MS, 5 * MS))
                left -= weight
                self._look(thread, path, weight, part)
        if amounts:
            self._event(thread, stack, amounts)
        return self

    def _look(self, thread, path, weight, part):
        self.now += weight
        self.records.append(
            {
                "record": "sample", "thread": thread, "stack": path, "time_ns": self.now, "weight_ns": weight,
                "run": 1, "gil": 0, "collecting": False,
            }  # fmt: skip
        )
        self._event(thread, path, {part: weight}, {"samples": 1, "cpu": weight})

    def _event(self, thread, path, amounts, more=()):
        values = {str(MEASURES[name]): amount for name, amount in amounts.items()}
        self.records.append({"record": "event", "thread": thread, "stack": path, "time_ns": self.now, "values": values})
        self.spent.append((thread, path, Counter(amounts) + Counter(more)))

    def write(self, path, **counters):
        """Writes the capture."""
        taken = sum(record["record"] == "sample" for record in self.records)
        counts = {"taken": taken, "missed": 0, "inconsistent": 0, "errors": 0, **counters}
        tail = [{"record": "counters", "number": 0, **counts}]
        cpu = Counter()
        for thread, _, amounts in self.spent:
            cpu[thread] += amounts["cpu"]
        for number, _ in enumerate(self.threads, 1):
            tail.append({"record": "thread_cpu", "thread": number, "cpu_ns": cpu[number]})
        tail.append({"record": "end"})
        # Ticks of a nanosecond, so that sums are exact.
        head = [{"record": "options", "tick_ns": 1}]
        lines = "".join(json.dumps(record) + "\n" for record in head + self.records + tail)
        subprocess.run([WRITE_CAPTURE, path], input=lines.encode(), check=True, timeout=60)
        return path

    # ------------------------------------------------------------------------------------------------ the truth ----

    def sums(self, key):
        """Measures by key(thread, stack); what has the key None is left out."""
        sums = defaultdict(Counter)
        for thread, stack, amounts in self.spent:
            name = key(thread, stack)
            if name is not None:
                sums[name].update(amounts)
        return sums

    def self_by_line(self, is_user):
        """By (file, line) of the innermost frame for which is_user(file)."""

        def key(_, stack):
            user = [f for f in stack if f["kind"] == 0 and is_user(f["file"])]
            return (user[-1]["file"], user[-1]["position"][0]) if user else None

        return self.sums(key)

    def by_native(self):
        return self.sums(lambda _, stack: stack[-1]["kind"] == 1 and (stack[-1]["file"], stack[-1]["function"]) or None)

    def total(self):
        return self.sums(lambda *_: "all")["all"]


def report(capture, format, path=None, *options, check=True, env=None):
    """`strobe report`'s output as text, or the path it was written to."""
    command = [STROBE, "report", "-f", format, *options, *(["-o", path] if path else []), capture]
    finished = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, env={**os.environ, **(env or {})}
    )
    if check:
        assert finished.returncode == 0, finished.stderr.decode()
    return path or finished.stdout.decode()


# ----------------------------------------------------------------------------------------------------- an example ----

CRUNCH = '''\
"""Reads measurements, sorts, compresses and stores them."""

import hashlib
import time
import zlib

import numpy as np


def load(path, block=1 << 20):
    chunks = []
    with open(path, "rb") as file:
        while chunk := file.read(block):  # from the disk
            chunks.append(chunk)
    return b"".join(chunks)


def smooth(values, width):
    """A running mean,
    in pure Python."""
    result = []
    for i in range(len(values)):
        window = values[max(0, i - width) : i + 1]
        result.append(sum(window) / len(window))
    return result


class Store:
    def __init__(self, queue):
        self.queue = queue

    def put(self, name, data):
        packed = zlib.compress(data, 9)
        digest = hashlib.sha256(packed).hexdigest()
        self.queue.put((f"{name}-{digest[:8]}", packed))

    def work(self):
        while True:
            name, packed = self.queue.get()
            time.sleep(0.01)


def main():
    data = load("input.bin")
    table = np.frombuffer(data, dtype=np.float64).reshape(-1, 100)
    product = table.T @ table
    for name, values in enumerate(product.tolist()):
        smooth(values, 50)
        Store(None).put(name, data)


main()
'''

ZLIB = "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13"
BLAS = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblasp-r0.3.21.so"
PYTHON = "/usr/local/bin/python3.14"
CRYPTO = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"
THREADING = "/usr/lib/python3.14/threading.py"
QUEUE = "/usr/lib/python3.14/queue.py"


def crunch(folder, memory=True):
    """A run of the program above, whose source is written into the folder."""
    file = str(folder / "crunch.py")
    (folder / "crunch.py").write_text(CRUNCH)
    run = Run(["python3", "crunch.py", "--blocks", "12"])
    main, worker = run.thread("MainThread"), run.thread("store-1")
    at = lambda function, line, first, qualname=None: frame(function, file, line, first, qualname)
    module = at("<module>", 52, 1)
    calls = lambda line: [module, at("main", line, 43)]
    load = [*calls(44), at("load", 13, 10)]
    smooth = lambda line: [*calls(48), at("smooth", line, 18)]
    put = lambda line: [*calls(49), at("put", line, 32, "Store.put")]
    run.spend(main, load, kernel=180 * MS, python=4 * MS, wait=95 * MS, gil_wait=0)
    run.spend(main, [*calls(44), at("load", 15, 10)], "_PyBytes_Join", PYTHON, native=21 * MS)
    run.spend(main, smooth(22), python=160 * MS)
    run.spend(main, smooth(23), "list_slice", PYTHON, python=120 * MS, native=80 * MS)
    run.spend(main, smooth(24), "builtin_sum", PYTHON, python=330 * MS, native=210 * MS, gil_wait=9 * MS, wait=9 * MS)
    run.spend(main, calls(46), "dgemm_kernel_HASWELL", BLAS, native=410 * MS, kernel=12 * MS)
    run.spend(main, put(33), "deflate_slow", ZLIB, native=690 * MS, python=2 * MS)
    run.spend(main, put(33), "longest_match", ZLIB, native=260 * MS)
    run.spend(main, put(34), "sha256_block_data_order", CRYPTO, native=140 * MS)
    run.spend(main, [*put(35), frame("put", QUEUE, 140, 120, "Queue.put")], python=3 * MS, kernel=1 * MS)
    start = [frame("run", THREADING, 1010, 1000, "Thread.run"), at("work", 39, 37, "Store.work")]
    run.spend(worker, [*start, frame("get", QUEUE, 190, 170, "Queue.get")], wait=2_400 * MS, python=1 * MS)
    run.spend(worker, [start[0], at("work", 40, 37, "Store.work")], wait=120 * MS, kernel=1 * MS)
    if memory:
        run.spend(main, load, alloc_bytes=800 << 20, alloc_count=800, live_bytes=0, peak_bytes=400 << 20)
        run.spend(main, [*calls(44), at("load", 15, 10)], alloc_bytes=400 << 20, alloc_count=1, peak_bytes=400 << 20, copy_bytes=400 << 20)
        run.spend(main, smooth(23), alloc_bytes=90 << 20, alloc_count=120_000, python_bytes=90 << 20, copy_bytes=70 << 20)
        run.spend(main, put(33), alloc_bytes=55 << 20, alloc_count=100, peak_bytes=1 << 20, live_bytes=50 << 20)
    return run


WORKER = """\
import json


def job(n):
    return json.dumps([str(i) for i in range(n)])


job(10**6)
"""


def family(folder):
    """The same with a child process, and a thread that Python knows nothing of."""
    run = crunch(folder)
    file = str(folder / "worker.py")
    (folder / "worker.py").write_text(WORKER)
    child = run.process(["python3", "worker.py", "--n", "3"], parent_pid=4242)
    job = [frame("<module>", file, 8, 1), frame("job", file, 5, 4)]
    dumps = frame("dumps", "/usr/lib/python3.14/json/__init__.py", 231, 183)
    worker = run.thread("MainThread", child)
    run.spend(worker, job, python=300 * MS, kernel=20 * MS, wait=10 * MS)
    run.spend(worker, [*job, dumps], "c_make_encoder_call", "/usr/lib/python3.14/lib-dynload/_json.so", native=210 * MS)
    run.spend(run.thread("blas-1"), [], "dgemm_kernel_HASWELL", BLAS, native=380 * MS)
    return run
