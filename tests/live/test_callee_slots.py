"""Where strobe thinks that a frame of 3.8 to 3.10 has what it calls, against where it really has it: a program looks into
its own frames at each call."""

import json
import subprocess

import pytest
from harness import STROBE

PRINT_CALLEE_SLOTS = STROBE.parent / "tests" / "tools" / "print_callee_slots"

# [bytecode, f_lasti in bytes, value stacks]: of each slot whether the callee (W: the function, the generator) is in it,
# another function (F), or something else. Where a method's object is called, its self takes its place meanwhile
# (method_vectorcall, Objects/classobject.c 3.8).
SEEN = """
import gc, json, os, sys, types

memory = os.open("/proc/self/mem", os.O_RDONLY)

def word(address):
    # What is above the top of a value stack may be no object any more.
    try: return int.from_bytes(os.pread(memory, 8, address), "little")
    except (OSError, OverflowError): return 0

# Offsets in PyFrameObject (Include/frameobject.h 3.8 to Include/cpython/frameobject.h 3.10).
F_CODE, F_VALUESTACK = 32, 64
CALLS = {"CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX", "CALL_METHOD", "FOR_ITER", "YIELD_FROM"}
import opcode
seen = {}
functions, generators = {}, {}

def owners(frame):
    code = frame.f_code
    if code not in functions:
        functions[code] = {id(one) for one in gc.get_referrers(code) if isinstance(one, types.FunctionType)}
    return functions[code]

def profile(frame, event, argument):
    caller = frame.f_back
    if event != "call" or caller is None or caller.f_lasti < 0 or frame.f_code.co_name in ("owners", "word"):
        return
    code, offset = caller.f_code, caller.f_lasti
    first = offset
    while code.co_code[first] == opcode.EXTENDED_ARG:
        first += 2
    if opcode.opname[code.co_code[first]] not in CALLS:
        return
    assert word(id(caller) + F_CODE) == id(code)
    sys.setprofile(None)
    values = word(id(caller) + F_VALUESTACK)
    wanted = owners(frame)
    flags = frame.f_code.co_flags & (0x20 | 0x80 | 0x200)
    if flags:
        wanted = {id(one) for one in gc.get_referrers(frame) if getattr(one, "gi_frame", getattr(one, "cr_frame", 0)) is frame}
    slots = ""
    for i in range(code.co_stacksize):
        value = word(values + 8 * i)
        slots += "W" if value in wanted else "F" if word(value + 8) == id(types.FunctionType) else "-"
    if "W" in slots:
        seen.setdefault((code.co_code.hex(), offset), set()).add(slots)
    sys.setprofile(profile)

class C:
    def __init__(self, *a, **k): self.a = a
    def __enter__(self): return self.get(1)
    def __exit__(self, *details): return self.get(b=2)
    def get(self, a=0, *, b=0): return self.take
    def take(self, f): return f
    def generate(self): yield f(1); yield from (f(2) for _ in "ab"); return self.get()

async def wait(x): return x
async def run(x): return await wait(x) + await wait(await wait(x))

def f(*a, **k): return a[0] if a else 1

def work(n):
    c = C()
    total = f(1, f(f(2), f(3))) + f(f(4)) if n else f(5)
    f(*[f(6), f(7)]), f(*(1,), **{"x": f(8)}), f(f(1), x=f(9), y=f(10))
    c.get(f(1)); c.get(b=f(2))(f(c.get)); bound = c.get; f(bound(1), bound(b=f(3)))
    [f(i) + f(f(i)) for i in c.generate()]; {f(i): f(f(i)) for i in range(3)}
    for i in c.generate():
        for j in c.generate():
            try:
                f(i, f(j))
                if n % 3 == 0: continue
                if n % 3 == 1: break
                raise ValueError(f(1))
            except KeyError: f(1)
            except ValueError as error: f(f(error))
            else: f(f(2))
            finally: f(f(3), f(4))
    with c as d, C() as e: f(f(5), f(6))
    f"{f(1)!r:>{f(2)}} {f(3)}"; f([1])[f(0):f(3)] if n < 3 else f(1) < f(2) < f(f(3))
    a, *b = f((1, 2, 3)); a = lambda x=f(1), *y, z=f(2): f(f(x))
    a(1); sorted([3, 2], key=lambda x: f(f(x)))
    try: run(f(1)).send(None)
    except StopIteration: pass
    return f(f(total))

sys.setprofile(profile)
for n in range(6): work(n)
sys.setprofile(None)
import argparse, textwrap, tokenize, io, ast, difflib, html.parser, email.parser, tempfile, contextlib
sys.setprofile(profile)
argparse.ArgumentParser().format_help(); textwrap.fill("word " * 30); ast.dump(ast.parse("a + f(1)"))
list(tokenize.generate_tokens(io.StringIO("def f(): return [1]").readline)); list(difflib.ndiff(["a"], ["b", "a"]))
email.parser.Parser().parsestr("A: b\\n\\nc"); html.parser.HTMLParser().feed("<a href=1>x</a>")
with tempfile.TemporaryDirectory() as name, contextlib.suppress(ValueError): int("x")
sys.setprofile(None)
print(json.dumps([[*key, sorted(slots)] for key, slots in seen.items()]))
"""


def test_callees_are_where_they_are_said_to_be(python, tmp_path):
    if python.at_least(3, 11):
        pytest.skip("the callee's frame says what it is")
    script = tmp_path / "seen.py"
    script.write_text(SEEN)
    finished = subprocess.run([python.path, script], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    seen = json.loads(finished.stdout)
    answers = subprocess.run(
        [str(PRINT_CALLEE_SLOTS), str(python.version[1])],
        input="".join(code + "\n" for code, _, _ in seen),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert len(answers) == len(seen) > 300
    right = 0
    for (code, offset, stacks), answer in zip(seen, answers):
        slots = (one.split(":") for one in answer.split())
        found = [(kind, int(index), int(lower)) for place, kind, index, lower in slots if int(place) == offset]
        assert len(found) == 1, (offset, code)
        kind, index, lower = found[0]
        for stack in stacks:
            there = {stack[index], stack[index - lower]}
            if kind == "method" and "W" not in there:
                there |= {stack[index + 1], stack[index + 1 - lower]}
            # What is called may be neither, but call the callee.
            assert "W" in there or "F" not in there, (offset, stack, index, code)
            right += "W" in there
    assert right > 0.9 * len(seen)
