"""What is copied, by line: held against what the program knows that it copied."""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy_packages
import pytest
from agent_reader import AGENT, Watched
from harness import strobe

MIB = 1 << 20
STRIDE = 2 * MIB
# Standard deviations: for normal deviates one sum in 10,000,000 is further off. What is drawn is fixed by a seed, so that
# a run is as the one before, but for what start-up copies.
DEVIATIONS = 5.3
SEED = {"STROBE_AGENT_MEMORY_SEED": "20011"}
# What a line copies beside what it says: small objects, of which one may be sampled.
SLACK = 2 * STRIDE

COPIES = """
import ctypes, threading
whole = bytes(3000017)
text = 'x' * 1000003
target = bytearray(5000011)
address = (ctypes.c_char * len(target)).from_buffer(target)
kept = bytearray(whole)
parts = [bytes(10007)] * 301
class Small:
    pass
def work():
    for i in range(61):
        bytes(kept) #thread
for i in range(67):
    whole[1:] #slice
for i in range(59):
    bytearray(whole) #bytearray
for i in range(71):
    b''.join(parts) #join
for i in range(43):
    ctypes.memmove(address, whole, 3000017) #memmove
for i in range(101):
    text + 'y' #add
for i in range(40009):
    whole[:1009] #small
thread = threading.Thread(target=work)
thread.start()
thread.join()
for i in range(4001):
    Small() #nothing
"""
EXPECTED = {
    "slice": 67 * 3000016,
    "bytearray": 59 * 3000017,
    "join": 71 * 301 * 10007,
    "memmove": 43 * 3000017,
    "add": 101 * 1000003,
    "small": 40009 * 1009,
    "thread": 61 * 3000017,
}


def report_of(python, code, path, *options, env=None):
    path.write_text(code)
    report = path.with_suffix(".json")
    command = ["run", "--no-capture", *options, "-o", report, "--", python.path, path]
    result = strobe(*command, env={**os.environ, **SEED, **(env or {})}, cwd=path.parent)
    assert result.returncode == 0, result
    return json.loads(report.read_text())


def rows_of(report, path):
    lines = {number: line.rpartition("#")[2] for number, line in enumerate(path.read_text().split("\n"), 1)}
    return {lines[row["line"]]: row for file in report["files"] if file["path"] == str(path) for row in file["lines"] if row["line"]}


def deviation(expected, stride=STRIDE):
    """The standard deviation of an estimate of so many bytes in blocks that are small, at most."""
    return math.sqrt(expected * stride)


def assert_near(row, expected):
    """As near as the report itself says that it knows: the theory's distance, or more where strobe did not get to run."""
    copied, margin = row["copy_bytes"], row.get("copy_bytes_margin", 0)
    spread = max(margin / 1.96, deviation(expected))
    assert abs(copied - expected) < DEVIATIONS * spread + SLACK, (row, expected)


def test_lines(python, tmp_path):
    report = report_of(python, COPIES, tmp_path / "victim.py")
    rows = rows_of(report, tmp_path / "victim.py")
    for mark, expected in EXPECTED.items():
        assert_near(rows[mark], expected)
    assert "nothing" not in rows or rows["nothing"]["copy_bytes"] <= SLACK
    # The parts are the whole.
    copied = sum(row["copy_bytes"] for file in report["files"] for row in file["lines"])
    total = sum(EXPECTED.values())
    assert abs(copied - total) < DEVIATIONS * deviation(total) + 0.05 * total


def test_left_out(any_python, tmp_path):
    """What was not measured is absent."""
    report = report_of(any_python, COPIES, tmp_path / "victim.py", "--cpu-only")
    assert not [row for file in report["files"] for row in file["lines"] if "copy_bytes" in row]


NUMPY = """
import numpy
a = numpy.ones(1000003)
b = numpy.empty_like(a)
for i in range(29):
    a.copy() #copy
for i in range(31):
    b[:] = a #assign
"""


def test_numpy(python, tmp_path):
    folder = numpy_packages.folder(python)
    if folder is None:
        pytest.skip("no NumPy for this interpreter")
    path = tmp_path / "victim.py"
    report = report_of(python, NUMPY, path, "--exclude", f"{folder}/*", env={"PYTHONPATH": str(folder)})
    rows = rows_of(report, path)
    assert_near(rows["copy"], 29 * 8000024)
    assert_near(rows["assign"], 31 * 8000024)


# Every function of the family, called by the program, and what it does held against what it should.
FAMILY = """
import ctypes, json, os, signal
libc = ctypes.CDLL(None)
buffer, source = ctypes.create_string_buffer(64), ctypes.create_string_buffer(b'0123456789', 32)
here = ctypes.addressof(buffer)
def call(name, *arguments):
    function = getattr(libc, name)
    function.restype = ctypes.c_void_p
    buffer.raw = b'ab' + bytes(30) + b'z' * 32
    offset = function(ctypes.c_void_p(here), *arguments) - here
    return [offset, buffer.raw[:34].decode()]
size = ctypes.c_size_t
def everything():
    return {name: call(name, *arguments) for name, *arguments in [
        ('memcpy', source, size(5)), ('memmove', source, size(5)), ('mempcpy', source, size(5)),
        ('wmemcpy', source, size(2)), ('wmemmove', source, size(2)),
        ('strcpy', source), ('stpcpy', source), ('strncpy', source, size(4)), ('strncpy', source, size(14)),
        ('strcat', source), ('strncat', source, size(4)), ('strncat', source, size(14)),
        ('__memcpy_chk', source, size(5), size(64)), ('__memmove_chk', source, size(5), size(64)),
        ('__mempcpy_chk', source, size(5), size(64)), ('__strcpy_chk', source, size(64)),
        ('__stpcpy_chk', source, size(64)), ('__strncpy_chk', source, size(4), size(64)),
        ('__strcat_chk', source, size(64)), ('__strncat_chk', source, size(4), size(64))]}
overlap = bytearray(b'0123456789')
view = (ctypes.c_char * 10).from_buffer(overlap)
ctypes.memmove(ctypes.byref(view, 2), view, 8)
pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).__memcpy_chk(buffer, source, size(32), size(8))
    os._exit(0)
print(json.dumps([everything(), overlap.decode(), os.waitpid(pid, 0)[1] & 127]))
"""


def test_family(any_python):
    """Each function does what libc's own does, the check of a fortified program included, sampled at each call."""
    copies = {"STROBE_AGENT_MEMORY_STRIDE_BYTES": str(MIB), "STROBE_AGENT_COPY_STRIDE_BYTES": "1"}
    bare = Watched(any_python, FAMILY, env={"LD_PRELOAD": ""}, read=False)
    watched = Watched(any_python, FAMILY, env=copies)
    plain, seen = (json.loads(run.stdout) for run in (bare, watched))
    assert seen == plain and plain[1] == "0101234567" and plain[2] == 6
    assert plain[0]["strncat"] == [0, "ab0123456789" + "\0" * 20 + "zz"]


# Initialised before the agent is, and run when it is done: its functions are called before they know what comes next.
EARLY = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
static char made[5][64];
__attribute__((constructor)) static void begin(void) {
    volatile size_t size = 5;
    memcpy(made[0], "first", size + 1);
    memmove(made[0] + 1, made[0], size + 1);
    const char *volatile from = "constructor";
    strcpy(made[1], from);
    strcat(made[1], from + 9);
    strncat(made[1], from, size);
    *(char *)mempcpy(made[2], from, size) = '!';
    strncpy(made[3], from, size);
    *stpcpy(made[4], from) = '?';
}
__attribute__((destructor)) static void end(void) {
    const char *right[] = {"ffirst", "constructororconst", "const!", "const", "constructor?"};
    for (int i = 0; i < 5; i++)
        if (strcmp(made[i], right[i]) != 0)
            _Exit(100 + i);
}
"""


def test_before_the_agent(any_python, tmp_path):
    (tmp_path / "early.c").write_text(EARLY)
    library = tmp_path / "early.so"
    command = ["cc", "-O0", "-fno-builtin", "-shared", "-fPIC", "-o", library, tmp_path / "early.c"]
    subprocess.run(command, check=True)
    for preload in (f"{library}", f"{AGENT} {library}", f"{library} {AGENT}"):
        run = Watched(any_python, "print(1)", env={"LD_PRELOAD": preload, "STROBE_AGENT_COPY_STRIDE_BYTES": "1"}, read=False)
        assert (run.returncode, run.stdout, run.stderr) == (0, b"1\n", b""), preload


# As many thread-local bytes as the loader keeps in reserve, in libraries that are loaded later.
STATIC_TLS = """
import ctypes, sys
print(sum(ctypes.CDLL(path).use() for path in sys.argv[1:]))
"""


def test_static_thread_local_memory(any_python, tmp_path):
    """What a program could load without the agent, it can load with it."""
    paths = [tmp_path / f"tls{i}.so" for i in range(8)]
    for path in paths:
        source = path.with_suffix(".c")
        source.write_text('__thread char room[128] __attribute__((tls_model("initial-exec")));\nint use(void) { return ++room[5]; }\n')
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", path, source], check=True)
    run = Watched(any_python, STATIC_TLS, *paths, env={"STROBE_AGENT_MEMORY_STRIDE_BYTES": "1", "STROBE_AGENT_COPY_STRIDE_BYTES": "1"}, read=False)
    assert run.json() == 8


OTHERS = [
    path
    for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")
    for path in Path("/usr/lib").glob(f"*/{name}")
]


@pytest.mark.parametrize("library", OTHERS, ids=lambda path: path.name)
def test_other_mallocs(any_python, library):
    """Allocators copy while they hold their locks, and each of these copies is looked at."""
    env = {
        "LD_PRELOAD": f"{AGENT} {library}",
        "STROBE_AGENT_MEMORY_STRIDE_BYTES": str(64 << 10),
        "STROBE_AGENT_COPY_STRIDE_BYTES": "1",
    }
    code = "import json\nprint(json.dumps(sum(len(bytearray(b'x' * i)) for i in range(3001))))"
    assert Watched(any_python, code, env=env).json() == 3000 * 3001 // 2
