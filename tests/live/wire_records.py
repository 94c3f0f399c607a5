"""Reads the records of a ring (src/wire/records.h), written one after the other."""

import struct
from dataclasses import dataclass

PAD, CODE, SAMPLE = range(3)
PYTHON, NATIVE, CUT = range(3)
TORN, NO_PYTHON, DETACHED = 1, 2, 4

HEADER = struct.Struct("<IHH")
CODE_HEAD = struct.Struct("<QIIiIBBBBIIIIIQ")
SAMPLE_HEAD = struct.Struct("<QQQQIIIIIIQQQQ")
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

    def _read_sample(self, flags, body):
        (time_ns, cpu_ns, user_us, system_us, overruns, kept, count, words, unit, _, *registers) = (
            SAMPLE_HEAD.unpack_from(body)
        )
        assert len(body) == SAMPLE_HEAD.size + count * FRAME.size + words * 8, (len(body), count, words)
        frames = []
        for i in range(count):
            address, instruction_bytes, kind = FRAME.unpack_from(body, SAMPLE_HEAD.size + i * FRAME.size)
            frames.append(Frame(self.codes[address] if kind == PYTHON else None, instruction_bytes, kind))
        assert kept <= len(self.last)
        self.last = (*frames, *self.last[len(self.last) - kept :])
        stack = struct.unpack_from(f"<{words}Q", body, SAMPLE_HEAD.size + count * FRAME.size)
        pc, stack_pointer = registers[:2]
        return Sample(
            flags, time_ns, cpu_ns, user_us, system_us, overruns, unit, pc, stack_pointer, self.last, kept, stack
        )


def read_ring(data):
    """The Samples of a ring, in order."""
    return Ring().feed(data)
