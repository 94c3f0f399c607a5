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
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import wire_records as wire
from harness import STROBE, TARGETS, Target

LIBRARY = STROBE.parent / "tests" / "tools" / "agent_walk.so"
STEPPING = TARGETS / "stepping.py"
ALTERNATING = TARGETS / "alternating.py"
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
    counts = dict(struct.iter_unpack("<QQ", Path(folder, "counts").read_bytes()))
    samples = [
        (sample, ring.stem, counts[sample.time_ns])
        for ring in sorted(Path(folder).glob("*.ring"))
        for sample in wire.read_ring(ring.read_bytes())
    ]
    return Seen(python, str(target.pid), samples, codes)


def line_of(code, frame):
    """The line that the interpreter says the instruction stands on."""
    if frame.instruction_bytes < 0:
        return code["first_line"]
    unit = min(frame.instruction_bytes // 2, len(code["lines"]) - 1)
    return code["lines"][unit]


def check_code(seen, code):
    """What the record says of a code object is what the interpreter says of it."""
    told = seen.codes.get(code.address)
    if told is None or (told["name"], told["file"]) != (code.name, code.filename):
        return None
    assert (code.qualname, code.first_line) == (told["qualname"], told["first_line"])
    assert code.bytecode_bytes == told["bytecode_bytes"]
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
