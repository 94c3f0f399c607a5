"""What the agent says about memory, held against what the program knows that it did, and against the kernel."""

import collections
import math
import signal
from pathlib import Path

import pytest
from agent_reader import AGENT, Watched

# The largest number of standard deviations that a sum may be off: for normal deviates one run in 10,000,000 is, and
# what is drawn is fixed by a seed, so that a run is as the one before but for what start-up allocates.
DEVIATIONS = 5.3
# So that all that a test has to tell fits into a ring, should nobody find the time to empty it.
STRIDE = 64 << 10
HEAD = """
import json, mmap, os, sys, threading
def private():
    with open('/proc/self/smaps_rollup') as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith('Private_'))
"""


def watch(python, code, *arguments, stride=STRIDE, seed=20011, env=None, **options):
    memory = {"STROBE_AGENT_MEMORY_STRIDE_BYTES": str(stride), "STROBE_AGENT_MEMORY_SEED": str(seed)}
    return Watched(python, HEAD + code, *arguments, env={**memory, **(env or {})}, **options)


def events(region):
    return [event for thread in region.threads for event in thread.memory]


def allocated(region, function):
    """Bytes, blocks and bytes not given back that are charged to a function: to itself, or what it comprehends."""
    freed = {event.id for event in events(region) if not hasattr(event, "address") and not hasattr(event, "size_bytes")}
    sums = collections.Counter()
    for event in events(region):
        if hasattr(event, "address") and function in event.lines[:2]:
            sums["bytes"] += event.weight_bytes
            sums["blocks"] += event.weight_count
            sums["live"] += 0 if event.id in freed else event.weight_bytes
    return sums


def thinning_variance(region, function):
    """What is left out of a ring that fills up, because its reader does not get to run, makes the others stand for more than
    they do at the full rate, and adds to the variance of their sum; where none is left out that is 0. A block that was sampled,
    to stand for `full` bytes, and kept with a chance of full / weight adds full² (weight / full - 1), and in expectation over
    whether it was kept that is weight (weight - full) of those that were (variance_of in src/sampler/agent_memory.c)."""
    variance = 0
    for event in events(region):
        if hasattr(event, "address") and function in event.lines[:2]:
            full = event.grown_bytes / -math.expm1(-event.grown_bytes / STRIDE)
            # Weights are whole numbers; each thinning doubles them.
            if event.weight_bytes > 1.5 * full:
                variance += event.weight_bytes * (event.weight_bytes - full)
    return variance


def margin(region, function, total_bytes):
    """How far the estimate of so many bytes in small blocks may be off. What they vary by at the full rate is known from what
    the function did, and not from the records: few of them would excuse themselves."""
    return DEVIATIONS * math.sqrt(total_bytes * STRIDE + thinning_variance(region, function))


def lost(region):
    """What the records stand for, at most, that found no room: a reader that does not get to run on a busy machine,
    while the ring is full of what start-up has to tell."""
    records = region.header["lost_memory_records"]
    assert records < 100
    return records * (STRIDE + 8192)


LINES = """
def first(count):
    return [bytes(991) for i in range(count)]
def second(count):
    return [bytes(241) for i in range(count)]
def brief(count):
    for i in range(count):
        bytes(7919)
keep = first(10007), second(20011)
brief(1009)
print(json.dumps(sys.getsizeof(bytes(991)) * 10007), flush=True)
print(json.dumps(sys.getsizeof(bytes(241)) * 20011), flush=True)
print(json.dumps(sys.getsizeof(bytes(7919)) * 1009), flush=True)
os.kill(os.getpid(), 9)
"""


def judge_lines(watched):
    """The three functions allocated what they say; what is there at the kill is live."""
    assert watched.returncode == -signal.SIGKILL, watched.stderr.decode()
    # The list that is returned grows, too: at most 9 / 8 of its length, with each of its steps at most once.
    for function, size, live in zip(("first", "second", "brief"), watched.stdout.split(), (True, True, False)):
        total = int(size)
        sums = allocated(watched.region, function)
        list_bytes = 0 if function == "brief" else {"first": 10007, "second": 20011}[function] * 8 * 10
        off = margin(watched.region, function, total)
        lowest = -off - lost(watched.region)
        assert lowest < sums["bytes"] - total < off + list_bytes, (function, sums, total)
        if live:
            assert lowest < sums["live"] - total < off + list_bytes, (function, sums, total)
        else:
            assert sums["live"] <= 8 * STRIDE + lost(watched.region), (function, sums)


def test_lines_and_kill(python):
    judge_lines(watch(python, LINES))


@pytest.mark.parametrize("variable", ["malloc", "debug", "pymalloc_debug", "malloc_debug", "mimalloc", "dev", "trace"])
def test_other_allocators(any_python, variable):
    if variable == "mimalloc" and not any_python.at_least(3, 13):
        pytest.skip("it came with 3.13")
    settings = {"dev": {"PYTHONDEVMODE": "1"}, "trace": {"PYTHONTRACEMALLOC": "1"}}
    env = settings.get(variable, {"PYTHONMALLOC": variable})
    judge_lines(watch(any_python, LINES, env=env))


FOOTPRINT = """
kind = sys.argv[1]
if kind == 'objects':
    keep = [(i, str(i)) for i in range(300007)]
elif kind == 'blocks':
    keep = [bytearray(b'x') * 40009 for i in range(1511)]
elif kind == 'map':
    keep = mmap.mmap(-1, 60000011)
    for i in range(0, len(keep), 4096):
        keep[i] = 1
    mmap.mmap(-1, 30000001).close()
elif kind == 'touched':
    import ctypes, time
    libc, GIB = ctypes.CDLL(None), 1 << 30
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mremap.restype = ctypes.c_void_p
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    def touch(size):
        keep = libc.mmap(None, 64 * GIB, 3, 0x4022, -1, 0)
        ctypes.memset(keep + GIB, 1, size)
        return keep
    keep = touch(30000001)
    assert libc.munmap(keep, 64 * GIB) == 0
    keep = libc.mremap(touch(60000011), 64 * GIB, 65 * GIB, 1)
    assert libc.munmap(keep + 2 * GIB, GIB) == 0
    # What is touched is seen as CPU time goes by.
    end = time.thread_time() + 1
    while time.thread_time() < end:
        pass
print(private(), flush=True)
os.kill(os.getpid(), 9)
"""
# What is private but never allocated: writable data of the interpreter and its libraries, stacks, and the agent's own.
PROGRAM_BYTES = 8 << 20


@pytest.mark.parametrize("kind", ["objects", "blocks", "map", "touched"])
def test_footprint(python, kind):
    watched = watch(python, "nothing = private()\nprint(nothing, flush=True)\n" + FOOTPRINT, kind)
    before, after = (int(line) for line in watched.stdout.split())
    footprint = watched.region.header["footprint_bytes"]
    # An arena is in the footprint as a whole, and free space at the heap's end may be touched or not.
    slack = 0.02 * after + (2 << 20)
    assert after - before - slack < footprint < after + slack, (before, after, footprint)
    if kind == "map":
        assert watched.region.header["peak_bytes"] > footprint + 29_000_000


MAPS = """
libc = __import__('ctypes').CDLL(None, use_errno=True)
import ctypes
pointer, size = ctypes.c_void_p, ctypes.c_size_t
libc.mmap.restype = libc.mremap.restype = pointer
libc.mmap.argtypes = [pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [pointer, size]
libc.mremap.argtypes = [pointer, size, size, ctypes.c_int]
MiB = 1 << 20
def take(bytes):
    return libc.mmap(None, bytes, 3, 0x22, -1, 0)
a = take(16 * MiB)
assert libc.munmap(a + 4 * MiB, 4 * MiB) == 0         # a hole: 12 are left
b = take(8 * MiB)
b = libc.mremap(b, 8 * MiB, 32 * MiB, 1)              # 32
c = take(64 * MiB)
assert libc.munmap(c, 64 * MiB) == 0                  # 0
d = libc.mmap(None, 256 * MiB, 0, 0x4022, -1, 0)      # reserved: 0
assert libc.mmap(d, 2 * MiB, 3, 0x32, -1, 0) == d     # 2 of it are used
with open(sys.executable, 'rb') as file:
    e = libc.mmap(None, 4096, 1, 2, file.fileno(), 0) # a file: 0
assert libc.munmap(e, 4096) == 0
libc.mprotect.argtypes = [pointer, size, ctypes.c_int]
f = libc.mmap(None, 128 * MiB, 0, 0x22, -1, 0)        # reserved: 0
assert libc.mprotect(f + MiB, 3 * MiB, 3) == 0        # 3 of it are opened
assert libc.mprotect(f, 8 * MiB, 3) == 0              # and 1 before, 4 behind
assert libc.mprotect(f + MiB, 4096, 0) == 0
assert libc.munmap(f, 2 * MiB) == 0                   # 1 less, and 1 less of the 3
os.kill(os.getpid(), 9)
"""


def test_mappings(python):
    """Each mapping is told whole, each change of it, and what is left of them is right to the byte."""
    watched = watch(python, MAPS, stride=1 << 30)
    assert watched.returncode == -signal.SIGKILL, watched.stderr.decode()
    mib = 1 << 20
    maps = [event for event in events(watched.region) if getattr(event, "domain", None) == 2]
    sizes = [(event.size_bytes // mib, event.grown_bytes // mib) for event in maps if event.size_bytes >= mib]
    assert sizes == [(16, 16), (8, 8), (32, 24), (64, 64), (2, 2), (3, 3), (1, 1), (4, 4)]
    ids = [event.id for event in maps if event.size_bytes >= mib]
    assert ids[1] == ids[2]
    changed = [(e.id, e.size_bytes) for e in events(watched.region) if type(e).__name__ == "Resize" and e.id in ids]
    freed = [e.id for e in events(watched.region) if type(e).__name__ == "Free" and e.id in ids]
    assert changed == [(ids[0], 12 * mib), (ids[5], 2 * mib)]
    assert freed == [ids[3], ids[6]]


THREADS = """
def work(count):
    keep = []
    for i in range(count):
        keep.append(bytes(1009))
        bytes(1013)
    kept.append(keep)
kept = []
threads = [threading.Thread(target=work, args=(5003,)) for i in range(int(sys.argv[1]))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sys.getsizeof(bytes(1009)) + sys.getsizeof(bytes(1013)))
"""


@pytest.mark.parametrize("count", [1, 2, 8])
def test_threads(python, count):
    watched = watch(python, THREADS, str(count))
    total = watched.json() * 5003 * count
    lists = 5003 * count * 8 * 10
    sums = allocated(watched.region, "work")
    off = margin(watched.region, "work", total)
    assert -off - lost(watched.region) < sums["bytes"] - total < off + lists


FORK = """
def early():
    return [bytes(4999) for i in range(2003)]
def late():
    return [bytes(4999) for i in range(4001)]
keep = early()
pid = os.fork()
if pid == 0:
    del keep
    more = late()
    os.kill(os.getpid(), 9)
os.waitpid(pid, 0)
print(pid)
"""


def test_fork(python):
    """A child begins with the parent's footprint, and what it does is its own."""
    watched = watch(python, FORK)
    child = watched.json()
    (region,) = watched.of_pid(child)
    total = 4001 * 5032
    off = margin(region, "late", total)
    assert abs(allocated(region, "late")["bytes"] - total) < off + lost(region) + 4001 * 80
    assert allocated(region, "early")["bytes"] == 0
    assert 0.9 * total < region.header["footprint_bytes"] < 1.3 * total + (8 << 20)


def test_limited_address_space(python):
    """When the program runs out of memory it hears so, and the profile up to then is there."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
def fill():
    keep = []
    while True:
        keep.append(bytes(1 << 20))
try:
    fill()
except MemoryError:
    pass
# Not before: as long as the exception is handled, nothing of it all is free.
print(1)
"""
    watched = watch(python, code)
    assert watched.json() == 1
    # The reader may not get to run before the ring is full.
    lost_bytes = watched.region.header["lost_memory_bytes"]
    assert allocated(watched.region, "fill")["bytes"] + lost_bytes > 200 << 20


OTHER_MALLOCS = [
    path
    for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")
    for path in Path("/usr/lib").glob(f"*/{name}")
]


@pytest.mark.parametrize("library", OTHER_MALLOCS, ids=lambda path: path.name)
def test_other_mallocs(any_python, library):
    """What another malloc maps for its blocks is not counted twice."""
    preload = {"LD_PRELOAD": f"{AGENT} {library}"}
    judge_lines(watch(any_python, LINES, env=preload))
    watched = watch(any_python, FOOTPRINT, "blocks", env=preload)
    after = int(watched.stdout)
    assert 1511 * 40009 < watched.region.header["footprint_bytes"] < after
