"""`strobe run --memory exact`: every byte, by line. All of it is held against sizes that the program itself gives; sizes are
primes, so that no sum comes about by chance."""

import json
import os
import signal
import subprocess

import pytest
from harness import strobe

UNTOLD_BYTES = 256 << 10  # by a thread that is killed, at most, in blocks that are large

# What a garbage collection allocates for itself would be charged to the line where it runs.
EXACT = """
import gc, json, os, signal, sys, threading
gc.disable()
class Small:
    __slots__ = ('x', 'y')
sizes = {name: sys.getsizeof(thing) for name, thing in [
    ('bytes', bytes(40009)), ('brief', bytes(60013)), ('array', bytearray(2097169)), ('small', Small()),
    ('thread', bytes(50021)), ('peak', bytearray(67108879)), ('child', bytes(30011)), ('passed', bytes(7001)),
    ('tiny', bytes(7))]}
print(json.dumps(sizes), flush=True)
kept, small, tiny, passed = [None] * 601, [None] * 20011, [None] * 503, [None] * 307
order = [i % 601 for i in range(701)]
def sampled():
    for i in range(601):
        kept[i] = bytes(40009) #bytes
    for i in range(401):
        bytes(60013) #brief
    for i in range(17):
        bytearray(2097169) #array
    for i in range(20011):
        small[i] = Small() #small
    for i in range(503):
        tiny[i] = bytes(7) #tiny
def work():
    for i in range(401):
        bytes(50021) #thread
def hand_over():
    for i in range(307):
        passed[i] = bytes(7001) #passed
def at_peak():
    block = bytearray(67108879) #peak
    del block
grown = []
def grow():
    for i in range(100003):
        grown.append(None) #grown
def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
def child(end):
    for i in order:
        kept[i] = bytes(30011) #child
    end()
sampled()
grow()
at_peak()
in_thread(hand_over)
passed.clear()
threads = [threading.Thread(target=work) for i in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for end in (lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL)):
    pid = os.fork()
    if pid == 0:
        child(end)
    os.waitpid(pid, 0)
print(sys.getsizeof(grown) - sys.getsizeof([]), flush=True)
"""


def report_of(python, code, path, env=None, status=0):
    """What the program printed, the report, and the rows by their marks."""
    path.write_text(code)
    report = path.with_suffix(".json")
    command = ["run", "--memory", "exact", "--no-capture", "-o", report, "--", python.path, path]
    result = strobe(*command, env={**os.environ, **(env or {})}, cwd=path.parent)
    assert result.returncode == status, result
    report = json.loads(report.read_text())
    lines = {number: line.rpartition("#")[2] for number, line in enumerate(code.split("\n"), 1)}
    rows = {lines[row["line"]]: row for file in report["files"] if file["path"] == str(path) for row in file["lines"] if row["line"]}
    return result.stdout, report, rows


def test_lines(python, tmp_path):
    """Bytes and blocks, what lives, and what was there at the peak, to the byte; threads, and children however they end."""
    stdout, report, rows = report_of(python, EXACT, tmp_path / "victim.py")
    head, grown = stdout.splitlines()
    # What debug hooks put around each block (_PyMem_DebugRawAlloc, Objects/obmalloc.c): size, kind, a pattern.
    around = 24 if python.debug else 0
    objects = {"array": 2, "peak": 2}
    sizes = {mark: size + around * objects.get(mark, 1) for mark, size in json.loads(head).items()}
    grown_bytes = int(grown) + around
    assert report["memory"]["stride_bytes"] == 1 and report["memory"]["lost_records"] == 0
    assert not [row for row in rows.values() if "alloc_bytes_margin" in row or "live_bytes_margin" in row]
    blocks = {"bytes": 601, "brief": 401, "small": 20011, "tiny": 503, "thread": 3 * 401, "passed": 307}
    for mark, count in blocks.items():
        assert (rows[mark]["alloc_bytes"], rows[mark]["alloc_count"]) == (count * sizes[mark], count), mark
    # An array is an object and a block.
    for mark, count in {"array": 17, "peak": 1}.items():
        assert (rows[mark]["alloc_bytes"], rows[mark]["alloc_count"]) == (count * sizes[mark], 2 * count), mark
    for mark in ("bytes", "small", "tiny"):
        row = rows[mark]
        assert row["live_bytes"] == row["peak_bytes"] == row["alloc_bytes"], mark
        assert row["live_count"] == row["alloc_count"] and row["temporary_bytes"] == 0, mark
    for mark in ("brief", "array", "thread", "passed", "peak"):
        assert rows[mark]["live_bytes"] == rows[mark]["live_count"] == 0, mark
    for mark in ("brief", "array", "thread", "passed"):
        assert rows[mark]["peak_bytes"] == 0, mark
    assert rows["peak"]["peak_bytes"] == sizes["peak"]
    for mark in ("brief", "thread"):
        assert rows[mark]["temporary_bytes"] == rows[mark]["alloc_bytes"], mark
    # A free-threaded list has a head of one word before its items.
    assert rows["grown"]["live_bytes"] - grown_bytes in ((8, 16) if python.free_threaded else (0,))
    assert rows["grown"]["live_count"] == 1
    # The children, of which one told all before it left, and the other was killed before it could tell of the last.
    untold = 2 * 701 * sizes["child"] - rows["child"]["alloc_bytes"]
    assert 0 <= untold <= UNTOLD_BYTES + sizes["child"]
    assert abs(2 * 601 * sizes["child"] - rows["child"]["live_bytes"]) <= untold + sizes["child"]
    assert rows["bytes"]["python_bytes"] == rows["bytes"]["alloc_bytes"]


CALLERS = """
import gc
gc.disable()
def leaf(n):
    return bytes(n) #leaf
def first():
    for i in range(101):
        leaf(1009) #first
def second():
    for i in range(103):
        leaf(2003) #second
def deep(n):
    if n > 0:
        return deep(n - 1) #deep
    return leaf(3001) #bottom
first()
second()
for i in range(107):
    deep(i) #top
for i in range(109):
    eval(compile('leaf(5003)', 'made', 'eval')) #made
"""


def test_callers(python, tmp_path):
    """The same line, called from everywhere: each caller has what came of it, whatever was called before, and however
    deep."""
    rows = report_of(python, CALLERS, tmp_path / "victim.py")[2]
    head = 33
    parts = {"first": 101 * (1009 + head), "second": 103 * (2003 + head), "bottom": 107 * (3001 + head)}
    for mark, expected in parts.items():
        # Beside it there are frames.
        assert expected <= rows[mark]["total_alloc_bytes"] <= expected + 4096, mark
    made = 109 * (5003 + head)
    assert 0 <= rows["leaf"]["alloc_bytes"] - sum(parts.values()) - made <= 16384
    assert made <= rows["made"]["total_alloc_bytes"] < made + 109 * (128 << 10)
    assert parts["bottom"] <= rows["top"]["total_alloc_bytes"] < parts["bottom"] + 107 * 107 * 1024


# Every function that gives out memory, and what of it lives.
FAMILY = """
import ctypes, gc
gc.disable()
pointer, size = ctypes.c_void_p, ctypes.c_size_t
libc, cpp = ctypes.PyDLL(None), ctypes.PyDLL('libstdc++.so.6')
def function(library, name, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = pointer, arguments
    return found
malloc, free = function(libc, 'malloc', size), function(libc, 'free', pointer)
calloc, realloc = function(libc, 'calloc', size, size), function(libc, 'realloc', pointer, size)
reallocarray = function(libc, 'reallocarray', pointer, size, size)
posix_memalign = function(libc, 'posix_memalign', pointer, size, size)
aligned_alloc, memalign = function(libc, 'aligned_alloc', size, size), function(libc, 'memalign', size, size)
valloc, pvalloc = function(libc, 'valloc', size), function(libc, 'pvalloc', size)
usable = function(libc, 'malloc_usable_size', pointer)
new, delete = function(cpp, '_Znam', size), function(cpp, '_ZdaPv', pointer)
new_aligned = function(cpp, '_ZnamSt11align_val_t', size, size)
mmap = function(libc, 'mmap', pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
mremap, munmap = function(libc, 'mremap', pointer, size, size, ctypes.c_int), function(libc, 'munmap', pointer, size)
place = ctypes.pointer(pointer())
def family():
    malloc(100003) #malloc
    calloc(7, 20011) #calloc
    block = malloc(50021) #grown from
    block = realloc(block, 150041) #grown
    other = malloc(200003) #shrunk
    other = realloc(other, 30011) #shrinking
    realloc(None, 40009) #realloc
    reallocarray(None, 11, 10007) #reallocarray
    posix_memalign(place, 64, 60013) #posix_memalign
    assert usable(place[0]) >= 60013
    aligned_alloc(64, 64576) #aligned_alloc
    memalign(128, 70001) #memalign
    valloc(80021) #valloc
    pvalloc(90112) #pvalloc
    new(110017) #new
    new_aligned(120011, 64) #new aligned
    mapped = mmap(None, 1 << 20, 3, 0x22, -1, 0) #mmap
    mapped = mremap(mapped, 1 << 20, 3 << 20, 1) #mremap
    munmap(mapped, 1 << 20) #munmap
    free(malloc(130003)) #free
    free(memalign(64, 140009)) #free aligned
    delete(new(150001)) #delete
family()
"""
# What a line allocated and what lives of that.
MIB = 1 << 20
OF_FAMILY = {
    "malloc": (100003, 100003),
    "calloc": (140077, 140077),
    "grown from": (50021, 0),
    "grown": (150041 - 50021, 150041),
    "shrunk": (200003, 30011),
    "shrinking": (0, 0),
    "realloc": (40009, 40009),
    "reallocarray": (110077, 110077),
    "posix_memalign": (60013, 60013),
    "aligned_alloc": (64576, 64576),
    "memalign": (70001, 70001),
    "valloc": (80021, 80021),
    "pvalloc": (90112, 90112),
    "new": (110017, 110017),
    "new aligned": (120011, 120011),
    "mmap": (MIB, 0),
    "mremap": (2 * MIB, 2 * MIB),
    "munmap": (0, 0),
    "free": (130003, 0),
    "free aligned": (140009, 0),
    "delete": (150001, 0),
}


def test_family(python, tmp_path):
    """Each of them is counted once, by what was asked for, and gone when it is."""
    rows = report_of(python, FAMILY, tmp_path / "victim.py")[2]
    nothing = {"alloc_bytes": 0, "live_bytes": 0}
    for mark, expected in OF_FAMILY.items():
        row = rows.get(mark, nothing)
        told = row["alloc_bytes"], row["live_bytes"]
        # Beside them are numbers, and what ctypes makes of them.
        assert all(0 <= one - wanted < 2048 for one, wanted in zip(told, expected)), (mark, told, expected)


# Foreign functions are called without the GIL.
DETACHED = """
import ctypes, gc, threading
gc.disable()
keep = ctypes.CDLL('./detached.so').keep
def call(count, size):
    keep(count, size) #call
def deep(n, count, size):
    if n > 0:
        return deep(n - 1, count, size) #deep
    call(count, size) #bottom
def work():
    for i in range(11):
        call(211, 1511) #first
        call(223, 1523) #second
        eval(compile('call(3, 1531)', 'made', 'eval')) #made
    deep(200, 227, 1543) #depth
work()
threads = [threading.Thread(target=work) for i in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
# They are Python's no more. They tell of themselves until they are the kernel's no more, either.
import os
while len(os.listdir('/proc/self/task')) > 1:
    pass
"""
KEEP = """
#include <stdlib.h>
void *volatile kept;
void keep(int count, int size_bytes) {
    for (int i = 0; i < count; i++)
        kept = malloc((size_t)size_bytes);
}
"""


def test_without_the_gil(python, tmp_path):
    """What C code asks for while the thread has let go of the GIL belongs to the stack that called it: from where nothing but
    a caller's line is another, after code objects have died, in several threads at once, and far down."""
    source = tmp_path / "detached.c"
    source.write_text(KEEP)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", tmp_path / "detached.so", source], check=True)
    _, report, rows = report_of(python, DETACHED, tmp_path / "victim.py")
    parts = {"first": 3 * 11 * 211 * 1511, "second": 3 * 11 * 223 * 1523, "made": 3 * 11 * 3 * 1531, "bottom": 3 * 227 * 1543}
    blocks = 3 * (11 * (211 + 223 + 3) + 227)
    assert report["memory"]["lost_records"] == 0
    # Beside them is what ctypes makes of the arguments.
    assert 0 <= rows["call"]["live_count"] - blocks < 100
    assert 0 <= rows["call"]["live_bytes"] - sum(parts.values()) < 64 << 10
    for mark, expected in parts.items():
        # And what the compiler took.
        more_bytes = 3 * 11 * (128 << 10) if mark == "made" else 64 << 10
        assert 0 <= rows[mark]["total_alloc_bytes"] - expected < more_bytes, mark


KILLED = """
import os, signal
kept = [bytearray(1048583) for i in range(31)] #kept
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed(any_python, tmp_path):
    rows = report_of(any_python, KILLED, tmp_path / "victim.py", status=128 + signal.SIGKILL)[2]
    for measure in ("alloc_bytes", "live_bytes", "peak_bytes"):
        assert rows["kept"][measure] == pytest.approx(31 * 1048584, abs=31 * 128 + 1024), measure


CHURN = """
import threading
class Node:
    __slots__ = ('next', 'data')
def churn(n):
    kept = {}
    for i in range(n):
        node = Node()
        node.data = [str(i), {i: 'x' * (i % 700)}, bytearray(i % 5000)]
        kept[i % 500] = node
        if i % 7 == 0:
            kept.pop((i * 31) % 500, None)
threads = [threading.Thread(target=churn, args=(6007,)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(1)
"""
SETTINGS = [{"PYTHONMALLOC": how} for how in ("malloc", "debug", "pymalloc_debug", "mimalloc")]
SETTINGS += [{"PYTHONDEVMODE": "1"}, {"PYTHONTRACEMALLOC": "1"}]


@pytest.mark.parametrize("env", SETTINGS, ids=lambda env: "-".join([*env][0:1] + [*env.values()]))
def test_other_allocators(any_python, env, tmp_path):
    """Whoever allocates: of what four threads did there is left what the interpreter keeps in free lists (and tracemalloc
    in its tables), and the program does not notice."""
    if env.get("PYTHONMALLOC") == "mimalloc" and not any_python.at_least(3, 13):
        pytest.skip("it came with 3.13")
    stdout, report, _ = report_of(any_python, CHURN, tmp_path / "victim.py", env=env)
    assert stdout == "1\n" and report["memory"]["lost_records"] == 0
    live = sum(row["live_bytes"] for row in report["functions"] if row["function"] == "churn")
    allocated = sum(row["alloc_bytes"] for row in report["functions"] if row["function"] == "churn")
    assert allocated > 4 * 6007 * 2500 and live < allocated / 100, (allocated, live)
