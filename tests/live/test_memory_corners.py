"""Memory in the corners of a program: what is hooked must go on as without strobe, and what is told must be right."""

import json
import os
import subprocess

import pytest
from embedding import environment_of, library_of
from harness import TARGETS, strobe
from memory_reports import BESIDE_BYTES, SEED, STRIDE, Report, most_samples, runner


@pytest.fixture
def run(tmp_path):
    return runner(tmp_path)


@pytest.fixture(scope="session")
def corners(tmp_path_factory):
    """The library made of targets/memory_corners.c."""
    path = tmp_path_factory.mktemp("corners") / "memory_corners.so"
    command = ["cc", "-O1", "-Wall", "-shared", "-fPIC", "-pthread", "-o", path, TARGETS / "memory_corners.c"]
    subprocess.run(command, check=True)
    return path


CORNERS = """
import ctypes, time
corners = ctypes.CDLL(os.environ['CORNERS']) #constructor
corners.corners_thread.restype = ctypes.c_void_p
handled = corners.corners_churn(1000)
assert handled > 0
with open('handled', 'w') as file:
    file.write(str(handled))
blocks = [corners.corners_thread() for i in range(3)] #native
def work():
    corners.corners_mark_thread()
threads = [threading.Thread(target=work) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
end = time.monotonic() + 10
while corners.corners_destroyed() < 7:
    assert time.monotonic() < end
for i in range(3):
    pid = os.fork()
    if pid == 0:
        block = bytearray(2097169) #child
        os._exit(0)
    os.waitpid(pid, 0)
assert corners.corners_forked() == 6
end = bytearray(3145739) #end
"""


def test_corners(python, run, corners, tmp_path):
    """A handler, a constructor of a library that is loaded, destructors of threads' values, handlers around fork."""
    report = run(python, CORNERS, env={"CORNERS": str(corners)})
    # A handler that interrupts the agent's own has to go without: few of those that ran do, and the more run the more do.
    handled = int((tmp_path / "handled").read_text())
    assert report.memory["lost_records"] <= 10 + handled // 20, handled
    report.assert_exact("native", "alloc", 3 * 3000017, small_bytes=32 << 10)
    report.assert_exact("native", "live", 3 * 3000017, small_bytes=32 << 10)
    # ctypes calls dlopen from its own source text, in the program's name; the loader needs something, too.
    report.assert_exact("constructor", "live", 5000011, small_bytes=64 << 10)
    report.assert_exact("child", "alloc", 3 * 2097170)
    report.assert_exact("end", "live", 3145740)


# Of the interpreter's own that there is before its first frame: 0.7 to 1.5 MB.
STARTUP_BYTES = 2 << 20


def test_before_main(any_python, run, corners):
    """What a library's constructor allocates before the program begins is charged to that."""
    for options, samples in ((), most_samples(STARTUP_BYTES)), (("--memory", "exact"), 0):
        report = run(any_python, "pass\n", *options, env={"LD_PRELOAD": str(corners)})
        rows = {row["function"]: row for file in report.report["files"] for row in file["lines"]}
        most = 5000011 + STARTUP_BYTES + samples * (STRIDE + BESIDE_BYTES)
        assert 5000011 <= rows["<startup>"]["live_bytes"] <= rows["<startup>"]["alloc_bytes"] <= most, options


WRAPPED = """
import ctypes
corners = ctypes.PyDLL(os.environ['CORNERS'])
kept, over = [], threading.Event()
def small(count):
    return [bytes(n) for n in [991] * count] #small
def others():
    while not over.is_set():
        [str(i) for i in range(100)]
threads = [threading.Thread(target=others) for i in range(3)]
for thread in threads: thread.start()
for i in range(50):
    corners.corners_wrap(1)
    kept.append(small(301))
    whole = bytearray(1048583) #whole
    asked = corners.corners_wrap(0)
    kept.append(small(301))
assert asked > 50 * 301
over.set()
for thread in threads: thread.join()
"""


def test_allocators_of_the_program(python, run, corners):
    """PyMem_GetAllocator and PyMem_SetAllocator are the program's, while other threads allocate."""
    if python.free_threaded:
        pytest.skip("there it is not safe to put others in place while threads allocate")
    report = run(python, WRAPPED, env={"CORNERS": str(corners)})
    total = 100 * 301 * (991 + 33)
    report.assert_near("small", "alloc", total, slack=100 * 301 * 8 * 10)
    report.assert_near("small", "live", total, slack=100 * 301 * 8 * 10)
    report.assert_exact("whole", "alloc", 50 * 1048584)


DEBUGGED = """
import ctypes
ctypes.pythonapi.PyMem_SetupDebugHooks()
def small(count):
    return [bytes(n) for n in [991] * count] #small
kept = small(20011)
ctypes.pythonapi.PyMem_SetupDebugHooks()
small(20011)
"""


def test_debug_hooks(python, run):
    """The interpreter's own are where it looks for them: to ask for them once more changes nothing."""
    report = run(python, DEBUGGED, env={"PYTHONMALLOC": "debug"})
    # They put 24 or 32 bytes around each object.
    total = 2 * 20011 * (991 + 33)
    report.assert_near("small", "alloc", total, slack=2 * 20011 * (32 + 8 * 10))
    report.assert_near("small", "live", total / 2, slack=20011 * (32 + 8 * 10))


NATIVE = """
import ctypes
libc = ctypes.CDLL(None)
identity = ctypes.c_ulong()
malloc = ctypes.cast(libc.malloc, ctypes.c_void_p)
def start(size):
    assert libc.pthread_create(ctypes.byref(identity), None, malloc, ctypes.c_void_p(size)) == 0 #start
    return identity.value
def wait(number):
    assert libc.pthread_join(ctypes.c_ulong(number), None) == 0 #wait
wait(start(7340033))
wait(start(7340033))
"""


def test_threads_without_python(python, run):
    """They are charged to the line that started them."""
    report = run(python, NATIVE)
    report.assert_exact("start", "alloc", 2 * 7340033)
    report.assert_exact("wait", "alloc", 0)


TWICE = """
kept = [bytes(n) for n in [40009] * 601] #kept
whole = bytearray(5242883) #whole
"""


@pytest.mark.parametrize("allocator", ["default", "debug"])
def test_interpreters_one_after_the_other(python, tmp_path, allocator):
    """Python is initialised, finalised, and initialised again: the second time is seen as the first."""
    if not python.shared:
        pytest.skip("no libpython to link with")
    program, path, report = tmp_path / "twice", tmp_path / "victim.py", tmp_path / "report.json"
    library = library_of(python)
    command = ["cc", "-o", program, TARGETS / "embed_twice.c", library, f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, check=True)
    path.write_text(TWICE)
    text = f"import runpy; kept = runpy.run_path({str(path)!r})"
    environment = {**os.environ, **SEED, **environment_of(python), "PYTHONMALLOC": allocator}
    result = strobe("run", "--no-capture", "-o", report, "--", program, text, text, env=environment, cwd=tmp_path)
    assert result.returncode == 0, result
    found = Report(json.loads(report.read_text()), path)
    found.assert_near("kept", "alloc", 2 * 601 * (40009 + 33), slack=2 * 601 * 8 * 10)
    found.assert_exact("whole", "alloc", 2 * 5242884)
    # What lives at the second one's end.
    found.assert_near("kept", "live", 601 * (40009 + 33), slack=601 * 8 * 10)
    found.assert_exact("whole", "live", 5242884)


STARVED = """
def first(count):
    for i in range(count):
        bytes(40009) #first
def second(count):
    for i in range(count):
        bytes(50021) #second
def third(count):
    for i in range(count):
        bytearray(1048583) #third
first(4001)
os.kill(os.getppid(), signal.SIGSTOP)
second(4001)
third(101)
os.kill(os.getppid(), signal.SIGCONT)
first(4001)
"""


def test_strobe_is_starved(python, run):
    """While strobe does not get to run rings fill up: less is told then, and no line loses by it."""
    report = run(python, STARVED)
    assert report.memory["lost_records"] == 0
    report.assert_near("first", "alloc", 2 * 4001 * (40009 + 33))
    report.assert_near("second", "alloc", 4001 * (50021 + 33))
    # Exact as long as there is room, with what a debug build puts around each; then a few of them stand for more than they
    # are, as the report says.
    report.assert_near("third", "alloc", 101 * 1048584, slack=101 * 64)
    # What is given back while rings are full is told later.
    for mark in ("first", "second", "third"):
        assert report.rows[mark]["live_bytes"] <= 2 * STRIDE, mark
