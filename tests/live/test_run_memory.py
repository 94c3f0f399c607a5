"""`strobe run`: memory by line, held against what the program did. Sizes are primes, so that no sum comes about by chance."""

import os
import signal
from pathlib import Path

import numpy_packages
import pytest
from memory_reports import MIB, STRIDE, runner


@pytest.fixture
def run(tmp_path):
    return runner(tmp_path)


# bytes(n) is one block of n and its head (33 bytes), which is sampled; bytearray's is n + 1, and exact from 1 MiB on.
LINES = """
kept, threads = [], []
def sampled():
    for i in range(601):
        kept.append(bytes(40009)) #kept
    for i in range(401):
        bytes(60013) #brief
    for i in range(17):
        bytearray(2097169) #exact
    grown = [None] * 786433 #list
    del grown
def peak():
    block = bytearray(67108879) #peak
    del block
    block = bytearray(33554467) #below
    del block
def work():
    for i in range(401):
        bytes(50021) #thread
def child():
    for i in range(7):
        kept.append(bytearray(3145739)) #child
sampled()
peak()
for i in range(3):
    threads.append(threading.Thread(target=work))
    threads[-1].start()
for thread in threads:
    thread.join()
pid = os.fork()
if pid == 0:
    child()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(pid, 0)
"""


def test_lines(python, run):
    """Sampled and exact lines, the peak, the end, threads and a child that is killed."""
    report = run(python, LINES)
    head = 33
    assert report.memory["stride_bytes"] == STRIDE and report.memory["lost_records"] == 0
    # The list that keeps them grows, too.
    list_bytes = 601 * 8 * 10
    assert report.assert_near("kept", "alloc", 601 * (40009 + head), slack=list_bytes) > 0
    report.assert_near("kept", "live", 601 * (40009 + head), slack=list_bytes)
    report.assert_near("kept", "peak", 601 * (40009 + head), slack=list_bytes)
    report.assert_near("brief", "alloc", 401 * (60013 + head))
    assert report.rows["brief"]["live_bytes"] == 0 and report.rows["brief"]["peak_bytes"] <= 2 * STRIDE
    report.assert_exact("exact", "alloc", 17 * 2097170)
    report.assert_exact("list", "alloc", 8 * 786433)
    report.assert_exact("list", "live", 0)
    report.assert_exact("peak", "peak", 67108880)
    report.assert_exact("below", "alloc", 33554468)
    report.assert_exact("below", "peak", 0)
    assert 67108879 + 601 * 40009 <= report.memory["peak_bytes"] <= 67108879 + 601 * 40009 + 16 * MIB
    report.assert_near("thread", "alloc", 3 * 401 * (50021 + head))
    # The child did not finalise: what it held when it was killed is live.
    for measure in ("alloc", "live", "peak"):
        report.assert_exact("child", measure, 7 * 3145740)
    (child,) = [process for process in report.report["processes"] if process["pid"] != report.report["pid"]]
    # What was looked for and was not there is 0, and not absent, in each process.
    assert child["sampled"]["copy_bytes"] <= MIB
    assert child["memory"]["inherited_bytes"] >= 601 * 40009
    assert child["memory"]["peak_bytes"] - child["memory"]["inherited_bytes"] >= 7 * 3145739


EXEC = """
kept = []
if "AGAIN" in os.environ:
    kept.append(bytearray(5242889)) #after
else:
    for i in range(7):
        kept.append(bytearray(3145739)) #before
    os.environ["AGAIN"] = "1"
    os.execv(sys.executable, [sys.executable, __file__])
"""


def test_exec(python, run):
    """What a program held is gone when it execs; the peak is that of the one that held more."""
    report = run(python, EXEC)
    report.assert_exact("before", "peak", 7 * 3145740)
    report.assert_exact("before", "live", 0)
    report.assert_exact("after", "peak", 0)
    report.assert_exact("after", "live", 5242890)


# The program that it becomes ends while strobe gets no processor; who wakes strobe sees the end of a pipe.
EXEC_UNSEEN = """
import time
kept = []
if "AGAIN" in os.environ:
    kept.append(bytearray(5242889)) #after
    sys.exit()
for i in range(7):
    kept.append(bytearray(3145739)) #before
strobe = os.getppid()
ended, end = os.pipe()
if os.fork() == 0:
    os.close(end)
    os.read(ended, 1)
    os.kill(strobe, signal.SIGCONT)
    os._exit(0)
os.set_inheritable(end, True)
os.environ["AGAIN"] = "1"
shell = f"sleep 0.2; kill -STOP {strobe}; exec $0 $1"
os.execv("/bin/sh", ["sh", "-c", shell, sys.executable, __file__])
"""


def test_exec_unseen(python, run):
    report = run(python, EXEC_UNSEEN)
    report.assert_exact("before", "peak", 7 * 3145740)
    report.assert_exact("before", "live", 0)
    report.assert_exact("after", "live", 5242890)
    assert len([process for process in report.report["processes"] if process["pid"] == report.report["pid"]]) == 1


LEAKS = """
import time
kept, cache = [], {}
def leak():
    kept.append(bytearray(b'x') * 400009) #leak
def hold(i):
    cache[i % 50] = bytearray(b'y') * 50021 #cache
def use():
    for i in range(10):
        bytes(70001) #brief
end = time.monotonic() + 3
i = 0
while time.monotonic() < end:
    leak()
    hold(i)
    use()
    i += 1
    time.sleep(0.02)
"""


def test_leaks(any_python, run):
    """What is kept is found, and at which rate; what is used again is none."""
    report = run(any_python, LEAKS)
    (leak,) = report.memory["leaks"]
    live = report.rows["leak"]["live_bytes"]
    assert leak["line"] == report.rows["leak"]["line"]
    assert leak["live_bytes"] == live > 3 * MIB
    assert leak["likelihood"] > 0.8
    assert leak["bytes_per_s"] == pytest.approx(live / 3, rel=0.35)


KILLED = """
kept = [bytearray(1048583) for i in range(31)] #kept
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed(python, run):
    """The profile up to that instant is there, with what lived."""
    report = run(python, KILLED, status=128 + signal.SIGKILL)
    for measure in ("alloc", "live", "peak"):
        report.assert_exact("kept", measure, 31 * 1048584)
    # mimalloc has size classes up to a quarter apart.
    taken = 31 * 1048583 * (1.25 if python.free_threaded else 1)
    assert 31 * 1048583 <= report.memory["peak_bytes"] <= taken + 16 * MIB


OUT_OF_MEMORY = """
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
kept = []
while True:
    kept.append(bytearray(1048583)) #kept
"""


@pytest.fixture
def memory_group():
    """A control group that may have no more than 256 MiB, of the first or the second version."""
    for parent, limit in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        group = Path("/sys/fs/cgroup", parent, f"strobe-test-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(256 * MIB))
            yield group
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    pytest.skip("no control group can be made here")


def test_out_of_memory(any_python, run, memory_group):
    """The kernel kills it: the line that took everything is there, with what the process had when it ended."""
    report = run(any_python, OUT_OF_MEMORY, arguments=[memory_group], status=128 + signal.SIGKILL)
    row = report.rows["kept"]
    assert 240 * MIB < row["live_bytes"] < 257 * MIB and row["peak_bytes"] == row["live_bytes"]
    assert 240 * MIB < report.memory["peak_bytes"] < 300 * MIB


SUDDEN = """
kept = []
for i in range(1409):
    kept.append(bytes(1 << 20)) #kept
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_sudden_growth(any_python, run):
    """What was there when the process was largest, however much it grew between two looks."""
    report = run(any_python, SUDDEN, status=128 + signal.SIGKILL)
    row = report.rows["kept"]
    # More than a ring holds: a few stand for the others.
    assert row["live_bytes"] == pytest.approx(1409 * MIB, rel=0.3)
    assert row["peak_bytes"] == pytest.approx(row["live_bytes"], rel=0.02)


def keys_of(value):
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def test_cpu_only(python, run):
    """What was not measured is absent."""
    report = run(python, "kept = [bytearray(1048583) for i in range(31)]\n", "--cpu-only")
    words = ("alloc", "peak", "live", "memory", "temporary", "python_bytes", "copy")
    assert not [key for key in keys_of(report.report) if key.startswith(words)]


NUMPY = """
import numpy
def arrays():
    a = numpy.ones(1000003) #ones
    b = numpy.ones(1000003, numpy.float32) #small
    for i in range(11):
        c = a + a #sum
    a += 1 #inplace
    view = a[::2] #view
    zero = numpy.zeros(16777259) #zeros
    kept.append(a)
kept = []
arrays()
"""


def test_numpy(python, run):
    folder = numpy_packages.folder(python)
    if folder is None:
        pytest.skip("no NumPy for this interpreter")
    # Its folder is none that tells library code.
    report = run(python, NUMPY, "--exclude", f"{folder}/*", env={"PYTHONPATH": str(folder)})
    allocated = {"ones": 8 * 1000003, "small": 4 * 1000003, "sum": 11 * 8 * 1000003, "zeros": 8 * 16777259}
    for mark, expected in allocated.items():
        report.assert_exact(mark, "alloc", expected)
    for mark in ("inplace", "view"):
        report.assert_exact(mark, "alloc", 0)
    report.assert_exact("ones", "live", 8 * 1000003)
    report.assert_exact("zeros", "peak", 8 * 16777259)
    report.assert_exact("sum", "live", 0)
