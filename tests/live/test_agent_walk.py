"""The agent's walk, after every single instruction of programs that do to their stacks what can be done to them.

targets/stepping.py says with its marks, as targets/alternating.py does, which function can stand above which, and on
which line. Not one stack may say otherwise, and none may be torn.
"""

import ast
import os
import platform
import re
import signal
import struct
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import wire_records as wire
from harness import STROBE, TARGETS, Target

LIBRARY = STROBE.parent / "tests" / "tools" / "agent_walk.so"
STEPPING = TARGETS / "stepping.py"
ALTERNATING = TARGETS / "alternating.py"
MAX_NAME_BYTES, MAX_FILENAME_BYTES, MAX_TABLE_BYTES = 4 << 10, 16 << 10, 24 << 10
STEPS = int(os.environ.get("AGENT_WALK_STEPS") or 40_000)

ALTERNATING_PROGRAMS = ["plain", "generators", "delegation", "coroutines", "constructors", "exceptions", "deep"]
OWN_PROGRAMS = [
    "callbacks",
    "generators_of_all_kinds",
    "growing",
    "constructing",
    "collecting",
    "threads_start_and_end",
    "raising",
    "tracing",
]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the trap flag is x86-64's")


@dataclass
class Source:
    names: dict = field(default_factory=dict)  # (file, first line, name) → qualified name
    marks: dict = field(default_factory=dict)  # (file, line) → names of what can stand above


def read_source(program):
    source = Source()
    for path in (STEPPING, ALTERNATING):
        text = path.read_text()

        def visit(node, prefix, path=path):
            for child in ast.iter_child_nodes(node):
                inner = prefix
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                    source.names[str(path), first, child.name] = prefix + child.name
                    if isinstance(child, ast.ClassDef) and not prefix:
                        inner = child.name + "."
                visit(child, inner)

        visit(ast.parse(text), "")
        for number, line in enumerate(text.splitlines(), 1):
            if mark := re.search(r"# -> (.*)", line):
                source.marks[str(path), number] = set(mark[1].replace("PROGRAM", program).split(", "))
    return source


@dataclass
class Seen:
    python: object
    main: str  # the thread of the program's own
    samples: list  # (Sample, thread, how often)
    codes: dict  # address → what the interpreter says of the code object there


def step(python, folder, program, steps=STEPS):
    with Target(python, STEPPING, LIBRARY, folder, steps, program, extra_env={"LD_PRELOAD": str(LIBRARY)}) as target:
        assert target.said == "ready"
        assert target.read_line() == "stepped"
        target.process.send_signal(signal.SIGINT)
        codes = {int(address): code for address, code in target.read().items()}
    samples = read_samples(folder)
    return Seen(python, str(target.pid), samples, codes)


def read_samples(folder):
    """(Sample, thread, how often)"""
    counts = dict(struct.iter_unpack("<QQ", Path(folder, "counts").read_bytes()))
    return [
        (sample, ring.stem, counts[sample.time_ns])
        for ring in sorted(Path(folder).glob("*.ring"))
        for sample in wire.read_ring(ring.read_bytes())
    ]


def line_of(code, frame):
    """The line that the interpreter says the instruction stands on."""
    if frame.instruction_bytes < 0:
        return code["first_line"]
    unit = min(frame.instruction_bytes // 2, len(code["lines"]) - 1)
    return code["lines"][unit]


def cut(text, most_bytes):
    """As a record has it: cut between characters, which take 1, 2 or 4 bytes, whichever the widest needs."""
    if text is None:
        return None
    widest = max(map(ord, text), default=0)
    return text[: most_bytes // (1 if widest < 0x100 else 2 if widest < 0x10000 else 4)]


def check_code(seen, code):
    """What the interpreter says of a code object; its record says the same. None when it is not there any more."""
    told = seen.codes.get(code.address)
    if told is None or (cut(told["name"], MAX_NAME_BYTES), cut(told["file"], MAX_FILENAME_BYTES)) != (
        code.name,
        code.filename,
    ):
        return None
    assert (code.qualname, code.first_line) == (cut(told["qualname"], MAX_NAME_BYTES), told["first_line"])
    assert (code.bytecode_bytes, code.flags) == (told["bytecode_bytes"], told["flags"])
    table = bytes.fromhex(told["table"])
    assert code.table_length == len(table)
    assert code.table == (table if len(table) <= MAX_TABLE_BYTES else b"")
    return told


def complaint_about(source, seen, sample, thread):
    """What is impossible about a stack, or None."""
    if sample.flags & wire.TORN:
        return "torn"
    frames = [frame for frame in sample.frames if frame.kind == wire.PYTHON]
    if not frames:
        # While it begins and ends.
        return "no frames" if thread == seen.main else None
    placed = []
    for frame in frames:
        code = frame.code
        if code.filename not in (str(STEPPING), str(ALTERNATING)):
            placed.append(None)
            continue
        told = check_code(seen, code)
        name = source.names.get((code.filename, code.first_line, code.name), code.name)
        line = line_of(told, frame) if told is not None else None
        placed.append((name, code.filename, line))
    for callee, caller in zip(placed, placed[1:]):
        if callee is None or caller is None or caller[2] is None:
            continue
        # A trace function comes above any line.
        if callee[0] != "trace" and callee[0] not in source.marks.get(caller[1:], ()):
            return f"{callee} above {caller}"
    outermost = placed[-1]
    # throw() through a `yield from` hides all outside of the generator from the interpreter itself (gen_throw,
    # Objects/genobject.c 3.9, 3.10).
    ends = {"<module>", "in_thread"} | ({"outer_catching"} if seen.python.version[:2] in ((3, 9), (3, 10)) else set())
    if outermost is not None and outermost[0] not in ends:
        return f"{outermost} is outermost"
    return None


@pytest.mark.parametrize("program", ALTERNATING_PROGRAMS + OWN_PROGRAMS)
def test_every_instruction(python, program, tmp_path):
    source = read_source(program)
    seen = step(python, tmp_path, program)
    complaints = Counter()
    total = 0
    for sample, thread, count in seen.samples:
        total += count
        if complaint := complaint_about(source, seen, sample, thread):
            complaints[complaint] += count
    assert total >= STEPS - 1000
    assert not complaints, (total, complaints.most_common(10))


def test_code_that_is_gone(python, tmp_path):
    """Of code objects that live for a moment, at the address of the one before, none is taken for another."""
    seen = step(python, tmp_path, "short_lived")
    named = Counter()
    for sample, _, _ in seen.samples:
        for frame in sample.frames:
            if frame.kind == wire.PYTHON and frame.code.filename.startswith("<gen"):
                assert frame.code.filename == f"<gen {sample.cpu_ns}>"
                named[frame.code.filename] += 1
    assert len(named) > 3


def test_every_name(python, tmp_path):
    """Names of all widths, too long ones, and line tables, as the interpreter says them."""
    seen = step(python, tmp_path, "odd_names", steps=150_000)
    codes = {}
    for sample, _, _ in seen.samples:
        assert not sample.flags & wire.TORN
        for frame in sample.frames:
            if frame.kind == wire.PYTHON:
                codes[frame.code.address] = frame.code
                told = check_code(seen, frame.code)
                # The call of leaf, and what comes before and after it.
                if told is not None and frame.code.first_line == 302:
                    assert line_of(told, frame) in (302, 304, 305, 307)
    checked = [code for code in codes.values() if check_code(seen, code) is not None]
    assert len({code.name for code in checked}) >= 7 + 2
    assert len({code.filename for code in checked}) >= 8
    assert any(code.table_length > MAX_TABLE_BYTES for code in checked)


def test_a_whole_life(python, tmp_path):
    """Windows of steps, wherever the process is when the clock strikes, from its first instruction to its last."""
    steps, window, period_us = 5_000_000, 2000, 3000
    environment = dict(
        os.environ,
        LD_PRELOAD=str(LIBRARY),
        AGENT_WALK=f"{tmp_path} {steps} {window} {period_us}",
        PYTHONDONTWRITEBYTECODE="1",
    )
    command = [python.path, "-W", "ignore", str(TARGETS / "whole_life.py")]
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=120)
    assert finished.returncode == 3
    assert finished.stdout == b"lived\nstepped\n"
    samples = read_samples(tmp_path)
    assert sum(count for _, _, count in samples) > 5 * window
    torn = [sample for sample, _, _ in samples if sample.flags & wire.TORN]
    assert not torn
