"""Many threads that wait, beside which others come and go: what a listing costs, and what is told of those for which strobe may
not open enough files."""

import collections
import json
import re
import shutil
import subprocess

import pytest
from harness import STROBE, TIMEOUT_S, TRACED, Target, strobe

# Of one thread, however many others come and go: to see what it is, and to watch it.
OPENS_PER_THREAD = 4
LEAST_BORN = OPENS_PER_THREAD + 2
CONTENDING_THREADS = 20

COMING = """
import sys, threading
threading.stack_size(128 << 10)
stop = threading.Event()
for _ in range(100):
    threading.Thread(target=stop.wait, daemon=True).start()
print("ready", flush=True)
def come():
    while not stop.is_set():
        thread = threading.Thread(target=stop.wait, args=(0.02,))
        thread.start()
        thread.join()
threading.Thread(target=come).start()
sys.stdin.readline()
stop.set()
"""

# What a thread waits for, or works, when those that stood before it have ended.
BURNT_S, RESTED_S = 0.6, 0.8
STANDING = f"""
import sys, threading, time
threading.stack_size(128 << 10)
stop = threading.Event()
others = [threading.Thread(target=stop.wait) for _ in range(40)]
def burn():
    deadline = time.thread_time() + {BURNT_S}
    while time.thread_time() < deadline:
        sum(range(300))
def rest():
    for other in others:
        other.join()
    time.sleep({RESTED_S})
def end_others():
    stop.set()
    for other in others:
        other.join()
    time.sleep(0.1)
"""
ATTACHED = STANDING + """
for other in others:
    other.start()
print("ready", flush=True)
sys.stdin.readline()
end_others()
burn()
"""
RUN = STANDING + """
for other in others:
    other.start()
late = threading.Thread(target=rest, name="late")
late.start()
time.sleep(0.2)
end_others()
late.join()
"""
# As many as strobe keeps for other things, and some threads' watches.
FEW_FILES = 64 + 60
TOLD = r"strobe: too many open files: when \d+ threads ran [^\n]*'ulimit -Hn'[^\n]*"


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def limited(*command):
    return ["sh", "-c", f'ulimit -n {FEW_FILES} && exec "$0" "$@"', *map(str, command)]


def opened_tasks(calls):
    """(thread, file) of each try to open a thread's file, by whatever folder."""
    return [match.groups() for match in re.finditer(r'openat\(\d+, "(?:task/)?(\d+)/(\w+)"', calls.read_text())]


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_a_listing_reads_what_is_new(python, script, tmp_path):
    calls = tmp_path / "calls"
    with Target(python, script(COMING)) as target:
        command = ["strace", "-f", "-e", "trace=openat", "-o", calls, STROBE, "attach", "-r", 100, "-d", 1]
        command += ["--quiet", "--no-capture", "-f", "json", "-o", tmp_path / "report", target.pid]
        subprocess.run([*map(str, command)], check=True, timeout=TIMEOUT_S, capture_output=True, env=TRACED)
        target.send()
    opened = opened_tasks(calls)
    watched = {thread for thread, file in opened if file == "schedstat"}
    if len(watched) < 101 + LEAST_BORN:
        pytest.skip("strobe got too little processor time to see threads come")
    per_thread = collections.Counter(thread for thread, file in opened if file == "stat")
    assert max(per_thread.values()) <= OPENS_PER_THREAD, per_thread.most_common(3)


def test_watched_as_soon_as_files_are_left(any_python, script, tmp_path):
    capture = tmp_path / "x.strobe"
    with Target(any_python, script(ATTACHED)) as target:
        command = limited(STROBE, "attach", "-r", 200, "--capture", capture, target.pid)
        attached = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        announced = attached.stderr.readline()
        target.send()
        _, said = attached.communicate(timeout=TIMEOUT_S)
    assert attached.returncode == 0, (announced, said)
    assert len(re.findall(TOLD, said)) == 1, said
    report = json.loads(strobe("report", "-f", "json", capture).stdout)
    threads = {thread["name"]: thread for thread in report["threads"]}
    # It came last, and began to work when those before it had ended.
    assert threads["MainThread"]["cpu_s"] > 0.9 * BURNT_S
    assert threads["MainThread"]["sampled"]["self_cpu_s"] > 0.8 * BURNT_S


def test_run_tells_of_threads_that_it_cannot_watch(any_python, script, tmp_path):
    capture = tmp_path / "x.strobe"
    command = limited(STROBE, "run", "--capture", capture, "--", any_python.path, script(RUN))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0 and len(re.findall(TOLD, ran.stderr)) == 1, ran
    report = json.loads(strobe("report", "-f", "json", capture).stdout)
    threads = {thread["name"]: thread for thread in report["threads"]}
    assert threads["late"]["sampled"]["wait_s"] > RESTED_S / 2


# Which stops strobe at these calls alone: what it does between two of them takes as long as ever.
STRACE = ["strace", "-f", "--seccomp-bpf"]
CONTENDING = f"""
import sys, threading
threading.stack_size(128 << 10)
stop = threading.Event()
def contend():
    while not stop.is_set():
        sum(range(300))
for _ in range({CONTENDING_THREADS}):
    threading.Thread(target=contend).start()
print("ready", flush=True)
sys.stdin.readline()
stop.set()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_who_waits_for_the_gil_says_so(python, script, tmp_path):
    """From 3.15 on: the system need not be asked of each thread at each look what it does, and what it waits for."""
    if not python.at_least(3, 15) or python.free_threaded:
        pytest.skip("its threads' states do not tell, or it has no GIL")
    calls, path = tmp_path / "calls", tmp_path / "report"
    with Target(python, script(CONTENDING)) as target:
        command = [*STRACE, "-e", "trace=pread64", "-o", calls, STROBE, "attach", "-r", 100, "-d", 2, "--idle"]
        command += ["--quiet", "--no-capture", "-f", "json", "-o", path, target.pid]
        subprocess.run([*map(str, command)], check=True, timeout=TIMEOUT_S, capture_output=True, env=TRACED)
        target.send()
    report = json.loads(path.read_text())
    # What the kernel's files are read with; memory is read in other sizes.
    asked = sum(", 1023, 0)" in line for line in calls.read_text().splitlines())
    # Two files of each at each look before: it was awake as often as not. And each is asked after 40 ms in any case.
    assert asked <= report["samples"]["taken"] + CONTENDING_THREADS * report["elapsed_s"] / 0.04


SLEEPING = """
import sys, threading
threading.stack_size(128 << 10)
stop = threading.Event()
for _ in range(60):
    threading.Thread(target=stop.wait).start()
def work():
    while not stop.is_set():
        sum(range(300))
threading.Thread(target=work).start()
print("ready", flush=True)
sys.stdin.readline()
stop.set()
"""
SLEEPERS, SLEEPERS_RATE_HZ = 60, 200


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_who_sleeps_is_not_asked_each_time(python, script, tmp_path):
    if python.free_threaded:
        pytest.skip("without a GIL nothing tells that a thread has begun to run")
    calls, path = tmp_path / "calls", tmp_path / "report"
    with Target(python, script(SLEEPING)) as target:
        command = [*STRACE, "-e", "trace=pread64", "-o", calls, STROBE, "attach", "-r", SLEEPERS_RATE_HZ, "-d", 2]
        command += ["--idle", "--quiet", "--no-capture", "-f", "json", "-o", path, target.pid]
        subprocess.run([*map(str, command)], check=True, timeout=TIMEOUT_S, capture_output=True, env=TRACED)
        target.send()
    report = json.loads(path.read_text())
    taken = report["samples"]["taken"]
    # Each look is one at each of them.
    assert taken > 0.9 * SLEEPERS * (SLEEPERS_RATE_HZ * report["elapsed_s"] - report["samples"]["missed"])
    asked = sum(", 1023, 0)" in line for line in calls.read_text().splitlines())
    # One of each sample before. What runs is asked each time, and all are when the processor's other users wake one up.
    assert asked <= 0.3 * taken


BURSTS_S = 4
# Samples of one function; and of each thread up to a tick is not settled with its clock.
BURSTS_BOUND = 0.2


def test_short_bursts_of_many_sleepers_are_seen(python, tmp_path):
    """Also of less than the kernel's tick, and also while they have let go of the GIL."""
    report = tmp_path / "report"
    with Target(python, "bursts.py", BURSTS_S) as target:
        strobe("attach", "--quiet", "--no-capture", "-f", "json", "-o", report, target.pid, check=True)
        spent = target.read()["functions"]
    told, seen = collections.Counter(), json.loads(report.read_text())
    for function in seen["functions"]:
        told[function["function"]] += function["total_cpu_s"]
    # What was used while strobe did not look is charged to what is seen next, also to where a thread sleeps.
    missed = seen["samples"]["missed"] / (seen["rate_hz"] * seen["elapsed_s"])
    of_both = sum(spent.values()) / sum(told[name] for name in spent)
    for name, cpu_s in spent.items():
        assert told[name] * of_both == pytest.approx(cpu_s, rel=BURSTS_BOUND + missed), (told, spent)
        assert told[name] > (0.8 - missed) * cpu_s, (told, spent)
