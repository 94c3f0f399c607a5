"""Reads what the agent shares (src/wire/region.h, records.h): a reader of its own, in Python, so that the C one and the
agent are held against something else than themselves."""

import json
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import wire_records
from harness import STROBE, TIMEOUT_S

AGENT = STROBE.parent / "libstrobe-agent.so"
# A ring holds a quarter of a second of samples.
READING_PERIOD_S = 0.03
# Debug builds and newer versions have warnings of their own.
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}

MAGIC = 0x31474165626F7274
SLOTS = 1024
RING_BYTES = 128 << 10
SLOT_BYTES = 192
SLOTS_OFFSET = 4096
RINGS_OFFSET = SLOTS_OFFSET + (SLOTS * SLOT_BYTES + 4095) // 4096 * 4096

STARTING, SAMPLING, OFF, ENDED = range(4)
SAMPLE, PAUSE = range(2)
SLOT_FREE, SLOT_CLAIMED, SLOT_LIVE, SLOT_ENDED = range(4)

HEADER = struct.Struct("=QIiiIIIQQQQIIQQQqQQIIQQqQ256s2048s")
HEADER_NAMES = (
    "magic version pid parent_pid python_version free_threaded forked start_ns period_ns runtime eval_address control"
    " peak_id no_slot deaths memory_stride_bytes footprint_bytes peak_bytes peak_ns state ring_bytes lost_memory_records"
    " lost_memory_bytes inherited_bytes no_event reason began_in"
).split()
CONTROL_OFFSET = 64
SLOT = struct.Struct("=IIQQQQQQQ")
SLOT_NAMES = "state tid thread_id start_ns start_cpu_ns start_user_us start_system_us end_ns end_cpu_ns".split()
@dataclass
class Thread:
    """One thread's life in a slot, and all that its ring had until it was read last."""

    tid: int
    fields: dict
    samples: list = field(default_factory=list)
    ring: wire_records.Ring = field(default_factory=wire_records.Ring)
    lost: int = 0
    torn: int = 0
    ended: bool = False

    @property
    def memory(self):
        """Allocations, Resizes and Frees, in their order."""
        return self.ring.memory

    @property
    def sampled_ns(self):
        """The CPU time that the samples stand for."""
        return self.samples[-1].cpu_ns - self.fields["start_cpu_ns"] if self.samples else 0


def header_of(memory):
    header = dict(zip(HEADER_NAMES, HEADER.unpack_from(memory, 0)))
    for name in "reason", "began_in":
        header[name] = header[name].split(b"\0")[0].decode()
    return header


class Region:
    """One process's region: mapped, and what was read of it so far."""

    def __init__(self, path):
        self.path = Path(path)
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self.live = {}  # slot: Thread
        self.threads = []  # in the order of their discovery

    @property
    def header(self):
        return header_of(self.memory)

    @property
    def valid(self):
        return self.header["magic"] == MAGIC

    def thread(self, tid):
        (found,) = [thread for thread in self.threads if thread.tid == tid]
        return found

    @property
    def main(self):
        return self.thread(self.header["pid"])

    def _load(self, kind, place):
        return memoryview(self.memory).cast(kind)[place // struct.calcsize(kind)]

    def _store(self, kind, place, value):
        """One store, of one value: pack_into would first write zeros, and then byte for byte. So it is with loads."""
        memoryview(self.memory).cast(kind)[place // struct.calcsize(kind)] = value

    def set_control(self, control):
        self._store("I", CONTROL_OFFSET, control)

    def slot(self, index):
        return dict(zip(SLOT_NAMES, SLOT.unpack_from(self.memory, SLOTS_OFFSET + index * SLOT_BYTES)))

    def states(self):
        return list(memoryview(self.memory)[SLOTS_OFFSET:][: SLOTS * SLOT_BYTES].cast("I")[:: SLOT_BYTES // 4])

    def read(self):
        """Empties all rings, gives the slots of ended threads back, and returns itself."""
        if len(self.memory) < RINGS_OFFSET:
            return self
        for index, state in enumerate(self.states()):
            if state in (SLOT_LIVE, SLOT_ENDED):
                self._read_slot(index, state)
        return self

    def _read_slot(self, index, state):
        fields = self.slot(index)
        thread = self.live.get(index)
        if thread is None:
            thread = self.live[index] = Thread(fields["tid"], fields)
            self.threads.append(thread)
        place = SLOTS_OFFSET + index * SLOT_BYTES
        written, thread.lost, thread.torn = (self._load("Q", place + 64 + 8 * i) for i in range(3))
        read = self._load("Q", place + 128)
        size = self.header["ring_bytes"] or RING_BYTES
        assert read <= written <= read + size
        start = RINGS_OFFSET + index * size
        ring = self.memory[start : start + size]
        parts = [ring[read % size : written % size]]
        if written > read and written % size <= read % size:
            parts = [ring[read % size :], ring[: written % size]]
        for part in parts:
            thread.samples.extend(thread.ring.feed(part))
        self._store("Q", place + 128, written)
        if state == SLOT_ENDED:
            thread.fields = fields
            thread.ended = True
            del self.live[index]
            self._store("I", place, SLOT_FREE)


class Watched:
    """A program run to its end under the agent, with a reader that empties its rings meanwhile, as strobe would.

    `code` is Python code for `python -c`; or `command` is a whole command line.
    """

    def __init__(
        self,
        python=None,
        code=None,
        *arguments,
        command=None,
        env=None,
        read=True,
        wait=True,
        timeout_s=TIMEOUT_S,
        **options,
    ):
        self.folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.regions = {}
        self.timeout_s = timeout_s
        command = command or [python.path, "-c", code, *arguments]
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        environment = {**os.environ, **QUIET, **agent_environment(self.folder), **(env or {})}
        self.process = subprocess.Popen([str(part) for part in command], env=environment, **options)
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read_on)
        if read:
            self._reader.start()
        if wait:
            self.end()

    def _read_on(self):
        while not self._over.wait(READING_PERIOD_S):
            self.read()

    def read(self):
        """Empties the rings of all processes."""
        for path in sorted(Path(self.folder).glob("*.region")):
            if path.name not in self.regions and path.stat().st_size >= HEADER.size:
                region = Region(path)
                if region.valid:
                    self.regions[path.name] = region
        for region in self.regions.values():
            region.read()

    def end(self):
        """Waits for the program's end and reads what is left."""
        try:
            self.stdout, self.stderr = self.process.communicate(timeout=self.timeout_s)
        finally:
            self.process.kill()
            self._over.set()
            if self._reader.ident:
                self._reader.join()
            self.returncode = self.process.returncode
            self.read()
            shutil.rmtree(self.folder)
        return self

    @property
    def region(self):
        """Of the one process."""
        (region,) = self.regions.values()
        return region

    def of_pid(self, pid):
        """The regions that a process made, in their order."""
        found = [region for region in self.regions.values() if region.header["pid"] == pid]
        return sorted(found, key=lambda region: region.header["start_ns"])

    def json(self):
        """What the program printed, when it was well."""
        assert (self.returncode, self.stderr) == (0, b""), self.stderr.decode()
        return json.loads(self.stdout)


def agent_environment(folder):
    return {
        "LD_PRELOAD": " ".join(filter(None, [str(AGENT), os.environ.get("LD_PRELOAD")])),
        "STROBE_AGENT_FOLDER": str(folder),
    }
