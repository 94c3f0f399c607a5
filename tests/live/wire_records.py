"""Reads the records of a ring (src/wire/records.h), written one after the other."""

import struct
from dataclasses import dataclass

PAD, CODE, SAMPLE, ALLOC, RESIZE, FREE, COPY, START, SITE, COUNTS = range(10)
PYTHON, NATIVE, CUT, LOST = range(4)
TORN, NO_PYTHON, DETACHED, FINALIZING = 1, 2, 4, 8
MALLOC_DOMAIN, PYTHON_DOMAIN, MAP_DOMAIN = range(3)

HEADER = struct.Struct("<IHH")
CODE_HEAD = struct.Struct("<QIIiIBBBBIIIIIQ")
SAMPLE_HEAD = struct.Struct("<QQQQIIIIIIQQQQ")
ALLOC_HEAD = struct.Struct("<QQQQQQQQQIIII")
RESIZE_BODY = struct.Struct("<QQQQ")
FREE_BODY = struct.Struct("<QQQQ")
START_HEAD = struct.Struct("<QQII")
COPY_HEAD = struct.Struct("<QQQII")
SITE_HEAD = struct.Struct("<IIII")
FRAME = struct.Struct("<QiI")
ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


@dataclass(frozen=True)
class Code:
    address: int
    bytecode_bytes: int
    first_traceable_bytes: int
    first_line: int
    flags: int
    name: str
    qualname: str
    filename: str
    table: bytes
    table_length: int


@dataclass(frozen=True)
class Frame:
    code: Code  # None unless it is Python's
    instruction_bytes: int
    kind: int


@dataclass(frozen=True)
class Sample:
    flags: int
    time_ns: int
    cpu_ns: int
    user_us: int
    system_us: int
    overruns: int
    code_unit: int
    program_counter: int
    stack_pointer: int
    frames: tuple  # innermost first
    kept: int
    stack: tuple  # words from the stack pointer up


@dataclass(frozen=True)
class Allocation:
    flags: int
    time_ns: int
    id: int
    address: int
    size_bytes: int
    grown_bytes: int
    weight_bytes: int
    weight_count: float
    footprint_bytes: int
    allocated_bytes: int
    domain: int
    frames: tuple  # innermost first

    @property
    def lines(self):
        """The names of its functions, innermost first."""
        return [frame.code.name for frame in self.frames if frame.code]


@dataclass(frozen=True)
class Resize:
    time_ns: int
    id: int
    size_bytes: int
    footprint_bytes: int


@dataclass(frozen=True)
class Free:
    time_ns: int
    id: int
    footprint_bytes: int
    allocated_bytes: int


@dataclass(frozen=True)
class Copy:
    flags: int
    time_ns: int
    copied_bytes: int
    weight_bytes: int
    frames: tuple  # innermost first

    @property
    def lines(self):
        """The names of its functions, innermost first."""
        return [frame.code.name for frame in self.frames if frame.code]


def padded(size):
    return (size + 7) & ~7


def read_code(body):
    (address, bytecode_bytes, first_traceable, first_line, flags, *rest) = CODE_HEAD.unpack_from(body)
    kinds, sizes = rest[0:3], rest[4:7]
    table_bytes, table_length = rest[7:9]
    at = CODE_HEAD.size
    texts = []
    for kind, size in zip(kinds, sizes):
        text = body[at : at + size].decode(ENCODINGS[kind], "surrogatepass") if kind else None
        assert kind or not size
        texts.append(text)
        at += padded(size)
    table = body[at : at + table_bytes]
    assert at + padded(table_bytes) == len(body)
    return Code(address, bytecode_bytes, first_traceable, first_line, flags, *texts, table, table_length)


class Ring:
    """A ring as it is read bit by bit."""

    def __init__(self):
        self.codes = {}
        self.last = ()
        self.memory = []
        self.copies = []

    def feed(self, data):
        """The Samples in whole records of the ring that follow those fed before."""
        at = 0
        while at < len(data):
            size, kind, flags = HEADER.unpack_from(data, at)
            assert size >= HEADER.size and size % 8 == 0 and at + size <= len(data)
            body = data[at + HEADER.size : at + size]
            at += size
            if kind == CODE:
                code = read_code(body)
                self.codes[code.address] = code
            elif kind == SAMPLE:
                yield self._read_sample(flags, body)
            elif kind == ALLOC:
                self.memory.append(self._read_allocation(flags, body))
            elif kind == RESIZE:
                self.memory.append(Resize(*RESIZE_BODY.unpack(body)))
            elif kind == FREE:
                self.memory.append(Free(*FREE_BODY.unpack(body)))
            elif kind == COPY:
                self.copies.append(self._read_copy(flags, body))

            elif kind == START:
                *_, kept, count = START_HEAD.unpack_from(body)
                self._read_frames(body, START_HEAD.size, kept, count)
            elif kind == SITE:
                _, kept, count, _ = SITE_HEAD.unpack_from(body)
                self._read_frames(body, SITE_HEAD.size, kept, count)

    def _read_frames(self, body, start, kept, count):
        frames = []
        for i in range(count):
            address, instruction_bytes, kind = FRAME.unpack_from(body, start + i * FRAME.size)
            frames.append(Frame(self.codes[address] if kind == PYTHON else None, instruction_bytes, kind))
        assert kept <= len(self.last)
        self.last = (*frames, *self.last[len(self.last) - kept :])

    def _read_allocation(self, flags, body):
        *fields, count_1024ths, footprint, allocated, domain, kept, count, _ = ALLOC_HEAD.unpack_from(body)
        assert len(body) == ALLOC_HEAD.size + count * FRAME.size
        self._read_frames(body, ALLOC_HEAD.size, kept, count)
        return Allocation(flags, *fields, count_1024ths / 1024, footprint, allocated, domain, self.last)

    def _read_copy(self, flags, body):
        *fields, kept, count = COPY_HEAD.unpack_from(body)
        assert len(body) == COPY_HEAD.size + count * FRAME.size
        self._read_frames(body, COPY_HEAD.size, kept, count)
        return Copy(flags, *fields, self.last)

    def _read_sample(self, flags, body):
        (time_ns, cpu_ns, user_us, system_us, overruns, kept, count, words, unit, _, *registers) = (
            SAMPLE_HEAD.unpack_from(body)
        )
        assert len(body) == SAMPLE_HEAD.size + count * FRAME.size + words * 8, (len(body), count, words)
        self._read_frames(body, SAMPLE_HEAD.size, kept, count)
        stack = struct.unpack_from(f"<{words}Q", body, SAMPLE_HEAD.size + count * FRAME.size)
        pc, stack_pointer = registers[:2]
        return Sample(
            flags, time_ns, cpu_ns, user_us, system_us, overruns, unit, pc, stack_pointer, self.last, kept, stack
        )


def read_ring(data):
    """The Samples of a ring, in order."""
    return Ring().feed(data)
