"""`strobe run` with the agent: where the time goes, held against the clocks of the program itself."""

import functools
import json
import math
import os
import pty
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import harness
import pytest
from harness import STROBE, TARGETS, strobe
from looks import Looks

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import capture_reader  # noqa: E402

# The kernel looks at CPU timers at its ticks (HZ is 100 at the least): so much of a function's CPU time may be charged
# to its neighbour each time one follows the other, and so much is not charged at all when the process is killed.
TICK_S = 0.01
# So far from its own measure may a share be.
POINTS = 0.02
# Waiting is looked at a hundred times a second, at random in each hundredth.
WAIT_PERIOD_S = 0.02


class Ran:
    """A finished run: its result, its report, and its capture."""

    def __init__(self, result, path, capture):
        self.result = result
        self.report = json.loads(path.read_text()) if path.exists() else None
        self.capture = capture

    @functools.cached_property
    def looks(self):
        return Looks(self.capture)

    def functions(self, name, measure):
        """The sum of a measure (a key of the report, or of its cpu_s) of the functions of that name."""
        rows = [row for row in self.report["functions"] if row["function"] == name]
        return sum(row["cpu_s"][measure] if measure in ("python", "native", "kernel") else row[measure] for row in rows)

    def cpu(self, name):
        return sum(self.functions(name, part) for part in ("python", "native", "kernel"))


@pytest.fixture
def run(tmp_path):
    """Runs a program under strobe and the agent; a Ran."""

    def run_it(*arguments, options=(), status=0, **popen_options):
        report, capture = tmp_path / "report.json", tmp_path / "kept.strobe"
        popen_options.setdefault("cwd", tmp_path)
        result = strobe("run", "--capture", capture, *options, "-o", report, *arguments, **popen_options)
        assert result.returncode == status, result
        return Ran(result, report, capture)

    return run_it


BURN = """
import os, sys, time
def burn(seconds, clock=time.thread_time):
    end = clock() + seconds
    while clock() < end:
        sum(range(300))
"""


def test_cpu_time_of_each_function(python, run):
    ran = run("--", python.path, TARGETS / "measured.py", 0.3)
    truth = json.loads(ran.result.stdout)
    whole = sum(of["cpu_s"] for of in truth["functions"].values())
    # Two turns, each of which has a beginning and an end.
    most_s = ran.looks.bound(4 * TICK_S, edges=2)
    for name, of in truth["functions"].items():
        assert ran.cpu(name) == pytest.approx(of["cpu_s"], abs=most_s), name
        assert ran.cpu(name) / whole == pytest.approx(of["cpu_s"] / whole, abs=max(POINTS, most_s / whole)), name
    assert ran.report["mode"] == "run" and ran.report["clock"] == "cpu"


def chance(share, looks):
    """Four standard deviations of a share that is seen by so many looks: one in 16,000 trials is further off."""
    share = min(max(share, 0.02), 0.98)
    return 4 * math.sqrt(share * (1 - share) / looks)


def test_parts_of_cpu_time(python, run):
    ran = run("--", python.path, TARGETS / "measured.py", 0.3, "burn_python", "burn_zlib", "burn_kernel")
    truth = json.loads(ran.result.stdout)["functions"]
    for name, part in (("burn_python", "python"), ("burn_zlib", "native"), ("burn_kernel", "kernel")):
        # The kernel's own account of system time is an estimate by ticks, and so is what strobe makes of it.
        system = truth[name]["system_s"] / truth[name]["cpu_s"]
        share = system if part == "kernel" else 1 - system
        looks = min(ran.looks.effective(name), ran.cpu(name) / TICK_S)
        bound = POINTS + chance(share, looks) + ran.looks.edge_s() / ran.cpu(name)
        assert ran.functions(name, part) / ran.cpu(name) == pytest.approx(share, abs=bound), name


def test_waiting_of_each_function(python, run):
    kinds = ["burn_python", "wait_sleep", "wait_select", "wait_socket", "wait_lock", "wait_often"]
    ran = run("--", python.path, TARGETS / "measured.py", 0.3, *kinds)
    # On a busy machine what burns waits for a processor; and strobe does, too: looks that it missed are an uncertainty.
    missed = ran.report["samples"]["missed"]
    truth = {name: of["wait_s"] for name, of in json.loads(ran.result.stdout)["functions"].items()}
    told = {name: ran.functions(name, "total_wait_s") for name in truth}
    for name, wait_s in truth.items():
        assert told[name] == pytest.approx(wait_s, abs=(4 + missed) * WAIT_PERIOD_S, rel=0.1), name
        share_bound = POINTS + missed * WAIT_PERIOD_S / sum(truth.values())
        assert told[name] / sum(told.values()) == pytest.approx(wait_s / sum(truth.values()), abs=share_bound), name


NO_SCHEDSTAT = """
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int openat(int folder, const char *path, int flags, int mode) {
    size_t length = strlen(path);
    if (length > 10 && strcmp(path + length - 10, "/schedstat") == 0) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, int mode) { return openat(folder, path, flags, mode); }
"""


def test_running_is_not_waiting_where_the_kernel_tells_no_clocks(any_python, run, tmp_path):
    """As where it was built without them: a look that finds a thread running counts, instead."""
    (tmp_path / "hide.c").write_text(NO_SCHEDSTAT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "hide.so", tmp_path / "hide.c"], check=True)
    (tmp_path / "x.py").write_text(BURN + "def rest(): time.sleep(0.3)\nburn(0.5)\nrest()\nburn(0.5)\nrest()\n")
    preloaded = filter(None, [os.environ.get("LD_PRELOAD"), str(tmp_path / "hide.so")])
    environment = dict(os.environ, LD_PRELOAD=" ".join(preloaded))
    ran = run("--", any_python.path, "x.py", env=environment)
    # A burn that waits for a processor is one that runs, by its state.
    missed_s = ran.report["samples"]["missed"] * WAIT_PERIOD_S
    assert ran.functions("rest", "total_wait_s") == pytest.approx(0.6, abs=6 * WAIT_PERIOD_S + missed_s)
    assert ran.functions("burn", "total_wait_s") <= 6 * WAIT_PERIOD_S + missed_s


JUMPS = BURN + """
import ctypes
def torn(): return ctypes.PyDLL(sys.argv[1]).jumps(ctypes.c_double(0.5))
def after(): burn(0.3)
jumps = torn()
after()
print(jumps)
"""


def test_handlers_that_jump(python, run, tmp_path):
    """Out of whatever they interrupt: were that the agent's own handler, the thread would not be sampled any more."""
    library = tmp_path / "jumps.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, harness.TARGETS / "jumps.c"], check=True)
    (tmp_path / "x.py").write_text(JUMPS)
    ran = run("--", python.path, "x.py", library)
    assert int(ran.result.stdout) > 100
    assert ran.functions("after", "total_cpu_s") == pytest.approx(0.3, abs=ran.looks.bound(3 * TICK_S))


CODE_THAT_DIES = """
import time
def run(source):
    start = time.monotonic()
    exec(compile(source, "made.py", "exec"), {"time": time})
    return time.monotonic() - start
def churn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run("def count(): return sum(range(1000))\\ncount()")
churn(0.3)
print(run("def rest(): time.sleep(0.5)\\nrest()"))
churn(0.03)
"""


def test_waiting_of_code_that_dies(python, run, tmp_path):
    """A sleep is told that is over when the code that slept is gone, and the program after it."""
    (tmp_path / "x.py").write_text(CODE_THAT_DIES)
    ran = run("--", python.path, "x.py")
    missed_s = ran.report["samples"]["missed"] * WAIT_PERIOD_S
    told = ran.functions("rest", "total_wait_s")
    assert told == pytest.approx(float(ran.result.stdout), abs=4 * WAIT_PERIOD_S + missed_s)



def weights_of(path):
    """{native id: seconds of all samples}, {native id: seconds by its clock} of the threads of a capture."""
    threads, weights, clocks = {}, {}, {}
    for record in capture_reader.Capture(Path(path).read_bytes()).records():
        if record["record"] == "thread":
            threads[record["thread"]] = record["native_id"]
        elif record["record"] == "sample":
            native_id = threads[record["thread"]]
            weights[native_id] = weights.get(native_id, 0) + record["weight_ns"] / 1e9
        elif record["record"] == "thread_cpu":
            clocks[threads[record["thread"]]] = record["cpu_ns"] / 1e9
    return weights, clocks


@pytest.mark.parametrize("seconds", [0, 0.05])
def test_sums_are_exact(python, tmp_path, seconds):
    """What all stacks got is what the thread's clock says, however short it ran."""
    capture = tmp_path / "c.strobe"
    program = [python.path, TARGETS / "measured.py", seconds, "burn_python", "burn_sorted", "burn_kernel"]
    result = strobe("run", "--capture", capture, "--", *program, cwd=tmp_path)
    assert result.returncode == 0, result
    weights, clocks = weights_of(capture)
    assert list(weights) == list(clocks)
    (native_id,) = clocks
    assert weights[native_id] == pytest.approx(clocks[native_id], abs=1e-4)
    # Before the agent there is the dynamic linker's work, after the program's own last look the interpreter's end.
    own = json.loads(result.stdout)["process_cpu_s"]
    assert own - 0.03 < clocks[native_id] < own + 0.3


THREADS = BURN + """
import json, threading
spent = {}
def work(name, seconds):
    start = time.thread_time()
    burn(seconds)
    spent[name] = time.thread_time() - start
threads = [threading.Thread(target=work, args=(f"worker{i}", 0.05 * (i + 1)), name=f"worker{i}") for i in range(5)]
idle = threading.Event()
threads.append(threading.Thread(target=idle.wait, name="idle", daemon=True))
for thread in threads: thread.start()
for thread in threads[:-1]: thread.join()
print(json.dumps(spent))
"""


def test_each_thread_has_its_own_time(python, run, tmp_path):
    (tmp_path / "x.py").write_text(THREADS)
    ran = run("--", python.path, "x.py")
    truth = json.loads(ran.result.stdout)
    threads = {thread["name"]: thread for thread in ran.report["threads"]}
    assert set(truth) | {"MainThread", "idle"} <= set(threads)
    for name, seconds in truth.items():
        assert threads[name]["cpu_s"] == pytest.approx(seconds, abs=0.01)
    assert threads["idle"]["cpu_s"] < 0.01


SHORT_THREADS = BURN + """
import json, threading
spent = [0.0]
def short():
    start = time.thread_time()
    burn(0.0015)
    spent[0] += time.thread_time() - start
for i in range(400):
    thread = threading.Thread(target=short)
    thread.start()
    thread.join()
print(json.dumps(spent))
"""


def test_threads_shorter_than_a_tick(any_python, run, tmp_path):
    """Of 400 of them about a third is met at the least (HZ is 250 or more), and stands for the others."""
    (tmp_path / "x.py").write_text(SHORT_THREADS)
    ran = run("--", any_python.path, "x.py")
    (truth,) = json.loads(ran.result.stdout)
    # Four standard deviations of a share of a third of 400 are 28 %, at HZ = 100 47 %; the time of all is known, which
    # makes it far less. On a busy machine there may be no tick in any of many threads, one after the other: then so much
    # is left over in the end.
    told, left_s = ran.functions("short", "total_cpu_s"), ran.looks.without_frames_s
    assert truth * 0.7 - left_s <= told <= truth * 1.3, (truth, told, left_s)


GIL = BURN + """
import json, threading
spent = {}
def waited_for_a_processor():
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return None
def work(name):
    delay = waited_for_a_processor()
    wall, cpu = time.perf_counter(), time.thread_time()
    burn(0.4)
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    spent[name] = wall, wall - cpu, None if delay is None else waited_for_a_processor() - delay
threads = [threading.Thread(target=work, args=(f"worker{i}",)) for i in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(list(spent.values())))
"""


def test_waiting_for_the_gil(python, run, tmp_path):
    """On a busy machine those that burn wait for a processor, too; the kernel says how long."""
    (tmp_path / "x.py").write_text(GIL)
    ran = run("--", python.path, "x.py")
    walls, waits, delays = zip(*json.loads(ran.result.stdout))
    bound_s = POINTS * sum(walls) + (6 + 3 * ran.report["samples"]["missed"]) * WAIT_PERIOD_S
    assert ran.functions("burn", "total_wait_s") == pytest.approx(sum(waits), abs=bound_s)
    gil = ran.functions("burn", "total_gil_wait_s")
    if python.free_threaded:
        assert gil == 0
    elif None not in delays:
        assert gil == pytest.approx(sum(waits) - sum(delays), abs=bound_s)
    assert gil <= ran.functions("burn", "total_wait_s")


CHILDREN = BURN + """
import json, multiprocessing, subprocess
def forked(): burn(0.1)
def pooled(seconds): burn(seconds); return os.getpid()
def started(): burn(0.1)
def root(): burn(0.1)
if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        started()
        sys.exit()
    pids = {"root": os.getpid()}
    pid = os.fork()
    if pid == 0:
        forked()
        os._exit(0)
    pids["forked"] = pid
    os.waitpid(pid, 0)
    child = subprocess.Popen([sys.executable, __file__, "child"])
    pids["started"] = child.pid
    child.wait()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pids["pooled"] = pool.apply(pooled, (0.1,))
    root()
    print(json.dumps(pids))
"""


def seconds_by_process(path):
    """{pid: {function: seconds of CPU}} of a capture, callees included, and the pids in their order."""
    capture = capture_reader.Capture(Path(path).read_bytes())
    pids, threads, seconds, order = {}, {}, {}, []
    for record in capture.records():
        if record["record"] == "process":
            if record["number"] not in pids:
                order.append(record["pid"])
            pids[record["number"]] = record["pid"]
        elif record["record"] == "thread":
            threads[record["thread"]] = pids[record["process"]]
        elif record["record"] == "sample":
            of = seconds.setdefault(threads[record["thread"]], {})
            for function in {frame["function"] for frame in record["stack"]}:
                of[function] = of.get(function, 0) + record["weight_ns"] / 1e9
    return seconds, order


def test_children_are_processes_of_their_own(python, tmp_path):
    script = tmp_path / "x.py"
    script.write_text(CHILDREN)
    result = strobe("run", "--quiet", "--capture", tmp_path / "c.strobe", "--", python.path, script, cwd=tmp_path)
    assert result.returncode == 0, result
    pids = json.loads(result.stdout)
    seconds, order = seconds_by_process(tmp_path / "c.strobe")
    assert order[0] == pids["root"]
    assert len(order) == len(set(order)), order
    bound = Looks(tmp_path / "c.strobe").bound(2 * TICK_S)
    for name, pid in pids.items():
        assert seconds[pid][name] == pytest.approx(0.1, abs=bound), (name, seconds[pid])
        assert not any(other in seconds[pid] for other in pids if other != name)


EXEC = BURN + """
def before(): burn(0.1)
def after(): burn(0.1)
if sys.argv[1:] == ["again"]:
    after()
else:
    before()
    print(os.getpid(), flush=True)
    os.execv(sys.executable, [sys.executable, __file__, "again"])
"""


def test_a_program_that_execs_itself(python, tmp_path):
    script = tmp_path / "x.py"
    script.write_text(EXEC)
    result = strobe("run", "--quiet", "--capture", tmp_path / "c.strobe", "--", python.path, script, cwd=tmp_path)
    assert result.returncode == 0, result
    seconds, order = seconds_by_process(tmp_path / "c.strobe")
    assert order == [int(result.stdout)]
    bound = Looks(tmp_path / "c.strobe").bound(2 * TICK_S)
    assert seconds[order[0]]["before"] == pytest.approx(0.1, abs=bound)
    assert seconds[order[0]]["after"] == pytest.approx(0.1, abs=bound)


SHORT = BURN + """
import json
def leave(status): os._exit(status)
def child(out, status):
    before = time.process_time()
    burn(0.003)
    os.write(out, json.dumps([before, time.process_time()]).encode())
    leave(status)
told = {}
for i in range(50):
    end, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(out, i)
    os.close(out)
    told[pid] = [i, *json.loads(os.read(end, 1000))]
    os.close(end)
    os.waitpid(pid, 0)
print(json.dumps(told))
"""


def test_children_too_short_for_the_clock(any_python, tmp_path):
    """Each is there once, with all of its time, charged to where it ended if nothing else was seen of it."""
    command = [any_python.path, "-c", SHORT]
    result = strobe("run", "--quiet", "--capture", tmp_path / "c.strobe", "--", *command, cwd=tmp_path)
    assert result.returncode == 0, result
    seconds, order = seconds_by_process(tmp_path / "c.strobe")
    told = json.loads(result.stdout)
    assert sorted(order[1:]) == sorted(map(int, told))
    numbers = {}
    for record in capture_reader.Capture((tmp_path / "c.strobe").read_bytes()).records():
        if record["record"] == "process":
            numbers[record["number"]] = str(record["pid"])
        elif record["record"] == "process_end" and numbers[record["number"]] in told:
            # Who is not the parent knows only by the kernel's word, which not everyone gets.
            assert record["status"] in (-1, told[numbers[record["number"]]][0] << 8)
    for pid, (_, before, whole) in told.items():
        # What the agent does until it samples a forked child is not the child's; how it ends is.
        assert whole - before - 1e-4 <= seconds[int(pid)]["<module>"] <= whole + 0.002, (pid, seconds[int(pid)])
    # 6 is CLOCK_MONOTONIC_COARSE, as fine as ticks are: where they are long, some children are too short for one.
    if time.clock_getres(6) > 0.003:
        assert any("leave" in of for of in seconds.values())


def end_of(process):
    """As a shell has it; None: not known."""
    return 128 + process["signal"] if "signal" in process else process.get("exit_status")


@pytest.mark.parametrize("options", [[], ["--no-agent"], ["-d", 0.2]], ids=["agent", "outside", "ended_before"])
def test_end_of_a_program_in_its_report(any_python, tmp_path, options):
    command = [any_python.path, "-c", BURN + "burn(0.3)\nos.kill(os.getpid(), 15)"]
    result = strobe("run", "--capture", "c.strobe", "--quiet", *options, "--", *command, cwd=tmp_path)
    assert result.returncode == 128 + 15
    table = strobe("report", "c.strobe", cwd=tmp_path).stdout
    (process,) = strobe("report", "-f", "json", "c.strobe", cwd=tmp_path).json()["processes"]
    known = "-d" not in options
    assert end_of(process) == (128 + 15 if known else None)
    assert (", ended by signal 15\n" in table) == known


ENDS = {
    "exit": ("sys.exit(7)", 7),
    "os_exit": ("os._exit(7)", 7),
    "exception": ("raise KeyError", 1),
    "sigkill": ("os.kill(os.getpid(), 9)", 137),
    "sigterm": ("os.kill(os.getpid(), 15)", 143),
    "abort": ("os.abort()", 134),
    "in_thread": ("import threading; threading.Thread(target=os._exit, args=(7,)).start(); time.sleep(60)", 7),
}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_lost_however_it_ends(python, run, tmp_path, how):
    code, status = ENDS[how]
    (tmp_path / "x.py").write_text(BURN + f"burn(0.2)\nprint(time.thread_time(), flush=True)\n{code}\n")
    ran = run("--", python.path, "x.py", status=status)
    # What it uses after the last look, when nobody could look any more, is in no sum: a tick's worth, or on a busy machine
    # as much as lies between two.
    untold_s = max(0, float(ran.result.stdout.split()[0]) - sum(ran.looks.weights.values()))
    assert untold_s <= ran.looks.bound(2 * TICK_S)
    assert ran.cpu("burn") == pytest.approx(0.2, abs=ran.looks.bound(2 * TICK_S) + untold_s)
    assert end_of(ran.report["processes"][0]) == status


RUNS_ON = BURN + """
import threading
going = threading.Event()
def work():
    while not going.is_set(): burn(0.01)
worker = threading.Thread(target=work)
worker.start()
print('ready', flush=True)
sys.stdin.readline()
going.set()
worker.join()
burn(0.2)
print('end')
"""


def test_a_program_runs_on_when_strobe_is_killed(any_python, tmp_path):
    capture = tmp_path / "c.strobe"
    command = [STROBE, "run", "--capture", capture, "--", any_python.path, "-c", RUNS_ON]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"ready\n"
        # What was sampled is written once a second; nothing tells of that but the file.
        deadline_s = time.monotonic() + harness.TIMEOUT_S
        while capture.stat().st_size < 1000 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        running.kill()
        assert running.wait(timeout=harness.TIMEOUT_S) == -signal.SIGKILL
        out, _ = running.communicate(b"\n", timeout=harness.TIMEOUT_S)
    assert out == b"end\n"
    # What it had is there, and the next one clears up behind it.
    result = strobe("report", "-f", "json", capture)
    report = json.loads(result.stdout)
    assert result.returncode == 6 and report["mode"] == "run"
    assert any(row["function"] == "burn" for row in report["functions"])
    assert strobe("run", "--no-capture", "--", any_python.path, "-c", "pass").returncode == 0
    assert not list(Path("/dev/shm").glob("strobe-agent-*")) or live_strobes()


def live_strobes():
    """Whether another strobe of this machine is at work."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text() == "strobe\n":
                return True
        except OSError:
            continue
    return False


def test_the_environment(any_python):
    """What else is preloaded stays, behind the agent; nothing else is changed."""
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    environment = dict(os.environ, MARK="kept", LD_PRELOAD="libm.so.6")
    # For a strobe with AddressSanitizer, which would rather be first.
    environment.update(ASAN_OPTIONS="exitcode=99:verify_asan_link_order=0", UBSAN_OPTIONS="halt_on_error=1")
    result = strobe("run", "--no-capture", "--", any_python.path, "-c", code, env=environment)
    seen = json.loads(result.stdout)
    agent = str(STROBE.parent / "libstrobe-agent.so")
    assert seen.pop("LD_PRELOAD") == f"{agent}:libm.so.6"
    added = {name for name in seen if name not in environment}
    assert all(name.startswith("STROBE_AGENT_") for name in added - {"LC_CTYPE"}), added
    assert {name: seen.get(name) for name in environment if name != "LD_PRELOAD"} == {
        name: value for name, value in environment.items() if name != "LD_PRELOAD"
    }


def test_a_shell_that_starts_python(any_python, run):
    ran = run("--", "sh", "-c", f"{any_python.path} -c '{BURN}burn(0.1)'; exit 3", status=3)
    assert ran.cpu("burn") == pytest.approx(0.1, abs=ran.looks.bound(2 * TICK_S))


def elf(machine=None, interpreter=None):
    """An executable for this machine that exits with 7, or claims to be for another or to want an interpreter."""
    code = b"\xb8\x3c\x00\x00\x00\xbf\x07\x00\x00\x00\x0f\x05"  # exit(7)
    path = (interpreter or "").encode() + b"\0"
    count = 2 if interpreter else 1
    offset = 64 + 56 * count
    base = 0x400000
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, machine or 62, 1, base + offset, 64, 0, 0, 64, 56, count, 0, 0, 0)
    body = code + path
    segments = b""
    if interpreter:
        at = offset + len(code)
        segments += struct.pack("<IIQQQQQQ", 3, 4, at, base + at, base + at, len(path), len(path), 1)
    size = offset + len(body)
    segments += struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    return header + segments + body


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program is in x86-64's machine code")
@pytest.mark.parametrize(
    "program,said,status",
    [
        (elf(), "is linked statically", 7),
        (elf(machine=183), "is for another architecture", None),
        (elf(interpreter="/lib/ld-musl-x86_64.so.1"), "uses musl", None),
    ],
    ids=["static", "aarch64", "musl"],
)
def test_programs_that_the_agent_cannot_be_loaded_into(tmp_path, program, said, status):
    """Directly and behind a script's first line: it is said, and what runs runs all the same."""
    (tmp_path / "program").write_bytes(program)
    (tmp_path / "script").write_text(f"#! {tmp_path / 'program'} -x\n")
    for name in ("program", "script"):
        (tmp_path / name).chmod(0o755)
        # What cannot be executed is given to the shell by execvp, which complains of its bytes.
        done = subprocess.run([STROBE, "run", "--", f"./{name}"], stderr=subprocess.PIPE, cwd=tmp_path, timeout=60)
        assert status is None or done.returncode == status
        first = done.stderr.splitlines()[0].decode()
        assert first.startswith("strobe: ") and said in first and "--no-agent" in first, done.stderr


def test_whole_runs_are_compared_as_they_are(any_python, tmp_path):
    """Who made a program twice as fast wants to see that."""
    captures = [tmp_path / "slow.strobe", tmp_path / "fast.strobe"]
    for capture, seconds in zip(captures, (0.4, 0.2)):
        code = BURN + f"burn({seconds})"
        ran = strobe("run", "--quiet", "--cpu-only", "--capture", capture, "--", any_python.path, "-c", code)
        assert ran.returncode == 0, ran
    told = strobe("diff", "-f", "json", *captures).json()
    sums = [sum(told[side]["sums"]["cpu_s"].values()) for side in ("before", "after")]
    assert told["scale"] == 1 and sums[0] - sums[1] == pytest.approx(0.2, abs=0.05), (told["scale"], sums)
    assert strobe("diff", "-f", "json", "--scale", *captures).json()["scale"] > 1
    harness.assert_refuses(strobe("diff", "--scale", "--as-is", *captures), harness.USAGE)


def test_the_rate(any_python, run):
    """It reaches the kernel's own limit, and a lower one is kept."""
    for rate in (50, 100):
        ran = run("--", any_python.path, "-c", BURN + "burn(1.0)", options=["-r", rate])
        samples = ran.functions("burn", "samples")
        # What lies between two looks that are too far apart, as the machine is busy, counts for none.
        far_s = sum(weight for weight in ran.looks.weights.values() if weight > 2 / rate)
        assert rate * 0.6 * (1 - far_s) <= samples <= rate * 1.1 + 2
        assert ran.cpu("burn") == pytest.approx(1.0, abs=ran.looks.bound(2.5 / rate))
        assert ran.report["rate_hz"] == rate


def test_progress_is_one_line_on_a_terminal(any_python, tmp_path):
    ours, theirs = pty.openpty()
    command = [STROBE, "run", "--progress", "--no-capture", "--quiet", "--", any_python.path, "-c", BURN + "burn(0.7)"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, cwd=tmp_path):
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            said += part
    os.close(ours)
    assert b"\r" in said
    # --quiet keeps it quiet.
    assert b"samples\x1b[K" not in said


def test_help_names_the_commands():
    words = strobe("run", "--help").stdout
    assert "--on-demand" in words and "--progress" in words


def test_a_child_without_the_agent_is_said(any_python, tmp_path):
    """One whose environment was emptied: its waiting is seen, from outside.

    strobe takes 0.2 s to know; the child lives for ten times that, as the machine may be busy."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(2)'], env={})"
    result = strobe("run", "--no-capture", "--", any_python.path, "-c", code, cwd=tmp_path)
    assert result.returncode == 0
    said = [line for line in result.stderr.splitlines() if line.startswith("strobe: ")]
    assert len(said) == 1 and "was not loaded into process" in said[0] and "--no-agent" in said[0], said


RAW_EXITS = BURN + """
import ctypes, threading, _thread
SYS_exit = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
libc = ctypes.CDLL(None)
threading.stack_size(64 << 10)
def vanish():
    libc.syscall(SYS_exit, 0)
def live(seconds): burn(seconds)
def tasks(): return len(os.listdir("/proc/self/task"))
for _ in range(40):
    for _ in range(50): _thread.start_new_thread(vanish, ())
    while tasks() > 1: time.sleep(0.001)
    thread = threading.Thread(target=live, args=(0.02,))
    thread.start()
    thread.join()
with open("/proc/self/timers") as timers: print(sum(line.startswith("ID:") for line in timers), flush=True)
os._exit(0)
"""


def test_threads_that_end_without_libc_free_their_slots(any_python, run):
    """2000 threads that cannot say that they end, and only half as many slots."""
    ran = run("--", any_python.path, "-c", RAW_EXITS)
    # All but the last few hundred threads have to be noticed; when strobe gets no CPU for long, a few have no slot.
    unseen_s = ran.looks.without_frames_s
    assert 0.8 * 40 * 0.02 - unseen_s <= ran.cpu("burn") <= 1.2 * 40 * 0.02
    # What is left of them in the kernel is taken away as their slots come to be used again.
    assert int(ran.result.stdout) <= 1024


def test_an_agent_that_cannot_work_says_why(any_python, run):
    """A limit on the size of files leaves no room for what is shared, but for the reason."""
    ran = run("--", "sh", "-c", 'ulimit -f 100; exec "$0" -c "import time; time.sleep(0.3); print(1)"', any_python.path)
    assert ran.result.stdout == "1\n"
    said = [line for line in ran.result.stderr.splitlines() if line.startswith("strobe: the agent")]
    assert len(said) == 1 and "ulimit -f" in said[0] and "--no-agent" in said[0], said


def may_unshare():
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not may_unshare(), reason="needs the right to make PID namespaces")
def test_processes_in_namespaces_of_their_own(any_python, tmp_path):
    """Both are process 1 to themselves, at the same time."""
    capture = tmp_path / "c.strobe"
    unshare = "unshare --pid --fork --mount-proc"
    for name in "one", "two":
        (tmp_path / f"{name}.py").write_text(BURN + f"def {name}(): burn(0.2)\n{name}()\nassert os.getpid() == 1\n")
    script = f"{unshare} {any_python.path} one.py & {unshare} {any_python.path} two.py; a=$?; wait $! && exit $a"
    result = strobe("run", "--quiet", "--capture", capture, "--", "sh", "-c", script, cwd=tmp_path)
    assert result.returncode == 0 and "strobe: the agent" not in result.stderr, result
    seconds, order = seconds_by_process(capture)
    assert len(order) == 2 and 1 not in order
    burned = [{name for name in ("one", "two") if name in seconds[pid]} for pid in order]
    assert sorted(map(sorted, burned)) == [["one"], ["two"]]
    bound = Looks(capture).bound(2 * TICK_S)
    for pid, names in zip(order, burned):
        assert seconds[pid][names.pop()] == pytest.approx(0.2, abs=bound)
