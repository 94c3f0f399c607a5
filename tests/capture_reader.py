"""A reader of captures that shares nothing with strobe: written from docs/capture-format.md alone.

usage: capture_reader.py FILE    prints what the capture holds, one record a line, as tests/tools/show_capture does.

It reads captures that are whole, and stops with an exception at the first thing that the document does not allow.
"""

import json
import sys

import xxhash
import zstandard

FILE_MAGIC = b"\x93STROBE\n"
CHUNK_MAGIC = b"\xc3HNK"


class Bytes:
    """A run of bytes, read from its front."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def __bool__(self):
        return self.at < len(self.data)

    def take(self, size):
        assert self.at + size <= len(self.data), "cut short"
        self.at += size
        return self.data[self.at - size : self.at]

    def fixed(self, size):
        return int.from_bytes(self.take(size), "little")

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert value < 1 << 64 and shift <= 70
                return value

    def varints(self, count):
        return [self.varint() for _ in range(count)]

    def zigzag(self):
        value = self.varint()
        return value // 2 if value % 2 == 0 else -(value + 1) // 2

    def text(self):
        return self.take(self.varint()).decode("utf-8", "surrogateescape")

    def texts(self):
        return [self.text() for _ in range(self.varint())]

    def position(self):
        value = self.varint()
        return value - 1 if value else None


def chunks(data):
    """(epoch, payload) of each chunk."""
    file = Bytes(data)
    assert file.take(8) == FILE_MAGIC
    assert file.fixed(2) == 1, "another major version"
    file.take(6)
    sequence = 0
    while file:
        header = file.take(24)
        checksum = file.fixed(8)
        fields = Bytes(header)
        assert fields.take(4) == CHUNK_MAGIC
        kind, flags = fields.fixed(1), fields.fixed(1)
        assert fields.fixed(2) == 0
        number, raw_size, stored_size, epoch = (fields.fixed(4) for _ in range(4))
        assert number == sequence and raw_size <= 4 << 20 and stored_size <= raw_size
        sequence += 1
        payload = file.take(stored_size)
        assert xxhash.xxh64_intdigest(header, seed=xxhash.xxh64_intdigest(payload)) == checksum
        if kind != 1 or flags & ~1:
            continue
        if flags & 1:
            payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=raw_size)
        assert len(payload) == raw_size
        yield epoch, payload


class Chunk:
    """What is remembered between the samples of a chunk."""

    def __init__(self, tick_ns, tick):
        self.tick_ns = tick_ns
        self.tick = tick
        self.before = None
        self.threads = {}


class Capture:
    """records(): a dict for each record, stacks as lists of frames, outermost first."""

    def __init__(self, data):
        self.data = data
        self.ended = False

    def records(self):
        last_epoch = None
        for epoch, payload in chunks(self.data):
            if epoch != last_epoch:
                assert epoch == (0 if last_epoch is None else last_epoch + 1)
                self.strings, self.frames, self.stacks = {0: None}, {}, {0: []}
                last_epoch = epoch
            self.next_ids = None
            body = Bytes(payload)
            while body:
                record = self.record(body)
                if record:
                    yield record

    def record(self, payload):
        kind = payload.fixed(1)
        if kind >= 0x80:
            return self.sample(kind, payload)
        body = Bytes(payload.take(payload.varint()))
        assert (kind == 1) == (self.next_ids is None), "the base is the first record and the only one"
        reader = {
            1: self.base, 2: self.fact, 3: self.string, 4: self.frame, 5: self.stack, 6: self.process,
            7: self.process_end, 8: self.counters, 9: self.thread, 10: self.thread_cpu, 11: self.thread_end,
            12: self.event, 13: self.end, 14: self.change, 15: self.footprint,
        }.get(kind)  # fmt: skip
        return reader(body) if reader else None

    def define(self, kind, table, thing):
        identity = self.next_ids[kind]
        self.next_ids[kind] += 1
        assert identity not in table
        table[identity] = thing

    def base(self, body):
        self.next_ids = dict(zip(("string", "frame", "stack"), body.varints(3)))
        self.chunk = Chunk(*body.varints(2))

    def fact(self, body):
        return {"record": "fact", "key": body.text(), "value": body.text()}

    def string(self, body):
        self.define("string", self.strings, body.data.decode("utf-8", "surrogateescape"))

    def frame(self, body):
        kind, function, qualname, file = body.varints(4)
        line, end_line, column, end_column, first_line = (body.position() for _ in range(5))
        frame = {
            "kind": kind,
            "function": self.strings[function],
            "qualname": self.strings[qualname],
            "file": self.strings[file],
            "position": [line, end_line, column, end_column],
            "first_line": first_line,
        }
        self.define("frame", self.frames, frame)

    def stack(self, body):
        back, frame = body.varints(2)
        parent = self.next_ids["stack"] - back if back else 0
        self.define("stack", self.stacks, [*self.stacks[parent], self.frames[frame]])

    def process(self, body):
        names = "number pid parent_pid version flags mode origin rate_mhz start_unix_ns start_ns".split()
        fields = dict(zip(names, body.varints(len(names))))
        return {"record": "process", **fields, "command": body.texts(), "libraries": body.texts()}

    def process_end(self, body):
        number, time_ns = body.varints(2)
        return {"record": "process_end", "number": number, "time_ns": time_ns, "status": body.zigzag()}

    def counters(self, body):
        names = ("number", "taken", "missed", "inconsistent", "errors")
        return {"record": "counters", **dict(zip(names, body.varints(5)))}

    def thread(self, body):
        identity, process, native_id, thread_id, interpreter = body.varints(5)
        return {
            "record": "thread",
            "thread": identity,
            "process": process,
            "native_id": native_id,
            "thread_id": thread_id,
            "interpreter": interpreter - 1,
            "name": body.text(),
        }

    def thread_cpu(self, body):
        return {"record": "thread_cpu", **dict(zip(("thread", "cpu_ns"), body.varints(2)))}

    def thread_end(self, body):
        identity, time_ns = body.varints(2)
        self.chunk.threads.pop(identity, None)
        return {"record": "thread_end", "thread": identity, "time_ns": time_ns}

    def event(self, body):
        self.chunk.tick += body.zigzag()
        thread, stack, count = body.varints(3)
        return {
            "record": "event",
            "thread": thread,
            "time_ns": self.chunk.tick * self.chunk.tick_ns,
            "values": {str(measure): amount for measure, amount in (body.varints(2) for _ in range(count))},
            "stack": self.stacks[stack],
        }

    def change(self, body):
        self.chunk.tick += body.zigzag()
        process, stack, count = body.varints(3)
        return {
            "record": "change",
            "number": process,
            "time_ns": self.chunk.tick * self.chunk.tick_ns,
            "values": {str(measure): amount for measure, amount in ((body.varint(), body.zigzag()) for _ in range(count))},
            "stack": self.stacks[stack],
        }

    def footprint(self, body):
        self.chunk.tick += body.zigzag()
        names = "number footprint_bytes peak_bytes peak_ns inherited_bytes stride_bytes lost_records resident_bytes".split()
        fields = dict(zip(names, body.varints(len(names))))
        points, tick, size = [], self.chunk.tick, 0
        for _ in range(body.varint()):
            tick, size = tick + body.zigzag(), size + body.zigzag()
            points.append([tick * self.chunk.tick_ns, size])
        execs = body.varint() if body else 0
        time_ns = self.chunk.tick * self.chunk.tick_ns
        return {"record": "footprint", **fields, "time_ns": time_ns, "points": points, "execs": execs}

    def end(self, body):
        self.ended = True
        time_ns, samples = body.varints(2)
        return {"record": "end", "time_ns": time_ns, "samples": samples}

    def sample(self, bits, payload):
        chunk = self.chunk
        if bits & 0x40:
            chunk.tick += payload.zigzag()
        how = bits >> 4 & 3
        before = chunk.threads.get(chunk.before)
        identity = {0: lambda: chunk.before, 1: lambda: before["next"], 2: payload.varint}[how]()
        if before is not None and identity != chunk.before:
            before["next"] = identity
        chunk.before = identity
        thread = chunk.threads.setdefault(identity, {})
        how = bits >> 2 & 3
        if how:
            assert how == 1
            thread["stack"] = payload.varint()
        if bits & 2:
            thread["state"] = payload.fixed(1)
        weight = payload.varint() if bits & 1 else chunk.tick - thread["tick"]
        assert weight >= 0
        thread["tick"] = chunk.tick
        return {
            "record": "sample",
            "thread": identity,
            "time_ns": chunk.tick * chunk.tick_ns,
            "weight_ns": weight * chunk.tick_ns,
            "run": thread["state"] & 3,
            "gil": thread["state"] >> 2 & 3,
            "collecting": bool(thread["state"] & 16),
            "stack": self.stacks[thread["stack"]],
        }


def main():
    with open(sys.argv[1], "rb") as file:
        capture = Capture(file.read())
    for record in capture.records():
        print(json.dumps(record, ensure_ascii=True))
    return 0 if capture.ended else 6


if __name__ == "__main__":
    sys.exit(main())
