"""strobe's tables of opcodes against what each interpreter says of itself, and against what really happens in it."""

import json
import subprocess

from harness import STROBE

PRINT_OPCODES = STROBE.parent / "tests" / "tools" / "print_opcodes"

# {name: number}, {number: number of caches}, {number of a specialised form: number of its base}. Where the interpreter
# keeps that differs: Lib/opcode.py to 3.12, Lib/_opcode_metadata.py and _opcode (C) from 3.13.
ASK = """
import json, opcode, sys
names = dict(opcode.opmap)
caches, bases = {}, {}
if sys.version_info >= (3, 13):
    import _opcode, _opcode_metadata
    names.update(_opcode_metadata._specialized_opmap)
    for base, forms in _opcode_metadata._specializations.items():
        bases.update((names[form], names[base]) for form in forms)
    counts = {names[name]: count for name, count in opcode._inline_cache_entries.items()}
elif sys.version_info >= (3, 11):
    counts = dict(enumerate(opcode._inline_cache_entries))
else:
    counts = {}
for name, number in opcode.opmap.items():
    # Of instrumented ones it does not tell, but an instruction is instrumented in its place.
    if name.startswith("INSTRUMENTED_"):
        continue
    caches[number] = counts.get(number, 0)
names = {name: number for name, number in names.items() if number < 256}
caches = {number: count for number, count in caches.items() if number < 256}
print(json.dumps([names, caches, bases]))
"""

# Every instruction of the standard library on which a frame stood when Python code began to run on top of it: of the
# running frames, by sys.setprofile (the caller's f_lasti).
SEEN = """
import bisect, dis, json, sys
places = {}
def profile(frame, event, argument):
    caller = frame.f_back
    if event == "call" and caller is not None and caller.f_lasti >= 0:
        places.setdefault(caller.f_code, set()).add(caller.f_lasti)
def opcodes(code, offsets):
    # Where 3.11 and 3.12 push a frame, f_lasti is that of the last cache.
    starts = [instruction.offset for instruction in dis.get_instructions(code)]
    return {code.co_code[starts[bisect.bisect(starts, offset) - 1]] for offset in offsets}
class C:
    def __init__(self): self.x = 1
    def __getattr__(self, name): return name
    def __setattr__(self, name, value): object.__setattr__(self, name, value)
    def __getitem__(self, key): return key
    def __setitem__(self, key, value): pass
    def __add__(self, other): return self
    def __lt__(self, other): return True
    def __contains__(self, other): return True
    def __iter__(self): return iter(list(self.generate()))
    def __enter__(self): return self
    def __exit__(self, *details): pass
    def __bool__(self): return True
    def __neg__(self): return self
    def __format__(self, how): return how
    def __hash__(self): return 1
    def __eq__(self, other): return True
    def __del__(self): pass
    def generate(self): yield 1; yield from (x for x in (1, 2))
    @property
    def p(self): return 1
async def wait(): return 1
async def run(): return await wait()
def work():
    for i in range(50):
        c = C(); c.p; c.y; c[1]; c[1] = 2; c + c; c < c; 1 in c; -c; f"{c:x}"; {c: 1}; {c}; c.z = 3
        a, b, d = c
        [x for x in c.generate()]; list(c.generate()); max(1, 2, key=lambda x: x)
        for x in c.generate(): pass
        with c: pass
        if c: pass
        c = not c
        f = work.__name__.replace; (lambda *a, **k: 1)(*(1,), **{}); (lambda *, a: 1)(a=1)
        try: run().send(None)
        except StopIteration: pass
sys.setprofile(profile)
work()
import json.tool, textwrap, argparse
argparse.ArgumentParser().format_help(); textwrap.fill("word " * 100)
sys.setprofile(None)
seen = set().union(*(opcodes(*place) for place in places.items()))
print(json.dumps(sorted(seen)))
"""


def table_of(python):
    """{number: (family, enters, base, caches)}"""
    finished = subprocess.run(
        [str(PRINT_OPCODES), str(python.version[1])], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    rows = (line.split() for line in finished.stdout.splitlines())
    return {int(number): (family, enters == "1", int(base), int(caches)) for number, family, enters, base, caches in rows}


def ask(python, program):
    finished = subprocess.run([python.path, "-c", program], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return json.loads(finished.stdout)


def test_numbers_caches_and_bases(python):
    table = table_of(python)
    names, caches, bases = ask(python, ASK)
    assert {name: number for name, number in names.items() if number not in table} == {}
    for number, count in caches.items():
        assert table[int(number)][3] == count, number
    for form, base in bases.items():
        assert table[int(form)][2] == base
    for name, number in names.items():
        expected = names.get(name.replace("INSTRUMENTED_", ""))
        if name.startswith("INSTRUMENTED_") and expected is not None:
            assert table[number][2] == expected, name


def test_callers_stand_on_instructions_that_can_call(python):
    table = table_of(python)
    names, _, _ = ask(python, ASK)
    seen = ask(python, SEEN)
    assert len(seen) > 10
    families = {names_of(names, number): table[number][0] for number in seen}
    assert not {name for name, family in families.items() if family in ("INVALID", "OTHER", "CACHE")}, families


def names_of(names, number):
    return next((name for name, candidate in names.items() if candidate == number), str(number))
