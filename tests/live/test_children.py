"""Processes that a sampled process starts: each of them in the capture once, with its own samples."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import harness
import pytest
from harness import BIRTH_S, STROBE, TOLD_OF_BIRTHS, Target, strobe

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import capture_reader  # noqa: E402

# Where the kernel tells of each birth, nothing that lives for a moment is missed.
SHORT_LIFE_S = 0.04 if TOLD_OF_BIRTHS else 0.3

# Each process says on standard output who it is, in one write; `burn_NAME` is where it spends its time.
COMMON = """
import os, subprocess, sys, time
def burn(name, seconds):
    scope = {"time": time, "seconds": seconds}
    exec(f"def burn_{name}():\\n  end = time.process_time() + seconds\\n"
         "  while time.process_time() < end: sum(range(300))", scope)
    os.write(1, f"{name} {os.getpid()} {os.getppid()}\\n".encode())
    scope["burn_" + name]()
def fork(name, seconds):
    pid = os.fork()
    if pid == 0:
        burn(name, seconds)
        os._exit(0)
    return pid
"""

TREE = COMMON + """
if sys.argv[1:] == ["child"]:
    burn("started", 0.1)
    sys.exit()
first = fork("forked", 0.1)
second = os.fork()
if second == 0:
    third = fork("grandchild", 0.1)
    os.waitpid(third, 0)
    os._exit(0)
subprocess.check_call(["true"])
subprocess.check_call(["sh", "-c", "true; true"])
started = subprocess.Popen([sys.executable, __file__, "child"])
burn("root", 0.1)
os.waitpid(first, 0)
os.waitpid(second, 0)
sys.exit(started.wait())
"""


class Sampled:
    """What a capture has: {pid: process}, and {pid: {function: seconds}} of all functions on the stacks."""

    def __init__(self, path):
        capture = capture_reader.Capture(Path(path).read_bytes())
        self.ends = {}
        self.seconds = defaultdict(Counter)
        self.last_ns = {}
        self.kept_s = Counter()
        looks = defaultdict(Counter)
        processes, threads = {}, {}
        for record in capture.records():
            kind = record["record"]
            if kind == "process":
                # Told again when another is known of it: it may have been met between fork and exec.
                processes[record["number"]] = record
            elif kind == "process_end":
                self.ends[processes[record["number"]]["pid"]] = record["time_ns"]
            elif kind == "counters":
                process = processes[record["number"]]
                rate_hz = WAIT_RATE_HZ if process["mode"] == MODE_CPU else process["rate_mhz"] / 1000
                self.kept_s[process["pid"]] = record["missed"] / rate_hz
            elif kind == "thread":
                threads[record["thread"]] = processes[record["process"]]["pid"]
            elif kind == "sample":
                pid = threads[record["thread"]]
                self.last_ns[pid] = record["time_ns"]
                looks[pid][record["thread"], record["time_ns"]] += record["weight_ns"] / 1e9
                for function in {frame["function"] for frame in record["stack"]}:
                    self.seconds[pid][function] += record["weight_ns"] / 1e9
        assert capture.ended
        self.processes = list(processes.values())
        self.pids = [process["pid"] for process in self.processes]
        # Without the agent it is wall time that is sampled here.
        self.has_agent = all(process["mode"] == MODE_CPU for process in self.processes)
        self.longest_s = {pid: max(of.values()) for pid, of in looks.items()}

    def may_miss(self, pid, root, used_s):
        """Whether a busy machine may have kept all that CPU time of a process from being seen. With the agent its own clock
        strikes, and one look can stand for all of it. From outside, strobe got no processor for as long: what it missed is in
        the root's count also when that was before it knew of the child, which it may know only after a while."""
        if self.has_agent:
            return self.longest_s.get(pid, 0) >= used_s
        return self.kept_s[root] >= used_s - (BIRTH_S if pid != root else 0)


MODE_CPU = 1
# How often waiting is looked at with the agent, whatever rate is asked for; without it strobe looks as often as that says.
WAIT_RATE_HZ = 100
# What each of the processes uses, at the least, but for some milliseconds.
BURNED_S = 0.09
AGENT, OUTSIDE = [], ["--no-agent"]
both_ways = pytest.mark.parametrize("how", [AGENT, OUTSIDE], ids=["agent", "outside"])


def run_children(python, script, *arguments, options=OUTSIDE):
    """Runs a script under strobe; returns what its processes said, {name: (pid, parent)}, and the capture."""
    capture = Path(script).parent / "capture.strobe"
    command = ["run", *options, "--capture", capture, "--", python.path, script, *arguments]
    result = strobe(*command, cwd=Path(script).parent)
    assert result.returncode == 0, result.stderr
    said = [line.split() for line in result.stdout.splitlines()]
    names = {name: (int(pid), int(parent)) for name, pid, parent in said}
    assert len(names) == len(said)
    return names, Sampled(capture)


def assert_sampled(names, sampled):
    """Each process that said its name is there once, with its own doings and nobody else's."""
    count = Counter(sampled.pids)
    assert all(count[pid] == 1 for pid, _ in names.values()), (names, count)
    for name, (pid, _) in names.items():
        burned = {function for function in sampled.seconds[pid] if function.startswith("burn_")}
        assert burned <= {"burn_" + name}, (name, sampled.seconds[pid])
        assert burned or sampled.may_miss(pid, names["root"][0], BURNED_S), (name, sampled.seconds[pid], sampled.kept_s)


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


@both_ways
def test_a_tree_of_processes(python, script, how):
    names, sampled = run_children(python, script(TREE), options=how)
    assert set(names) == {"root", "forked", "grandchild", "started"}
    assert_sampled(names, sampled)
    parents = {process["pid"]: process["parent_pid"] for process in sampled.processes}
    for name, (pid, parent) in names.items():
        assert parents[pid] == (parent if name != "root" else 0)
    commands = {process["pid"]: process["command"] for process in sampled.processes}
    assert commands[names["started"][0]][-1] == "child"
    # The child between the root and its grandchild; sh and true are no Python. But up to 3.9 subprocess forks, and what
    # the machine lets wait between fork and exec is Python as long as it does.
    others = set(sampled.pids) - {pid for pid, _ in names.values()}
    assert others <= {names["grandchild"][1]} or not python.at_least(3, 10)
    assert not any(name.startswith("burn_") for pid in others for name in sampled.seconds[pid])


@both_ways
def test_only_the_root_when_so_wished(any_python, script, how):
    names, sampled = run_children(any_python, script(TREE), options=[*how, "--no-children"])
    assert sampled.pids == [names["root"][0]]


def test_blocking(any_python, script):
    names, sampled = run_children(any_python, script(TREE), options=["--no-agent", "--blocking"])
    assert_sampled(names, sampled)


MULTIPROCESSING = COMMON + """
import multiprocessing
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    workers = [multiprocessing.Process(target=burn, args=(f"worker{i}", 0.1)) for i in range(3)]
    for worker in workers: worker.start()
    burn("root", 0.1)
    for worker in workers: worker.join()
    sys.exit(max(worker.exitcode for worker in workers))
"""


@both_ways
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(any_python, script, method, how):
    names, sampled = run_children(any_python, script(MULTIPROCESSING), method, options=how)
    assert set(names) == {"root", "worker0", "worker1", "worker2"}
    assert_sampled(names, sampled)


STORM = COMMON + """
if sys.argv[1:2] == ["child"]:
    burn(sys.argv[2], float(sys.argv[3]))
    sys.exit()
for i in range(30):
    forked = fork(f"forked{i}", float(sys.argv[1]))
    started = subprocess.Popen([sys.executable, "-S", __file__, "child", f"started{i}", sys.argv[1]])
    os.waitpid(forked, 0)
    started.wait()
burn("root", 0.05)
"""


@both_ways
def test_many_short_lives(any_python, script, how):
    """Sixty children, two at a time: none is lost, none is there twice."""
    names, sampled = run_children(any_python, script(STORM), SHORT_LIFE_S, options=how)
    assert len(names) == 61 and len(sampled.pids) == len(set(sampled.pids))
    # From outside nobody has seen who lived and died while strobe got no processor; that may be two in the time of one.
    missing = {pid for pid, _ in names.values()} - set(sampled.pids)
    unseen_s = len(missing) / 2 * (SHORT_LIFE_S - BIRTH_S)
    kept_s = sampled.kept_s[names["root"][0]] if how == OUTSIDE else 0
    assert set(sampled.pids) <= {pid for pid, _ in names.values()} and unseen_s <= kept_s, (missing, kept_s)
    # On a busy machine strobe may wait for a processor as long as one of them lives.
    for name, (pid, _) in names.items():
        burned = {function for function in sampled.seconds[pid] if function.startswith("burn_")}
        assert burned <= {"burn_" + name}


OUTLIVED = COMMON + """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
sys.stdin.readline()
parent = os.getpid()
child = os.fork()
if child == 0:
    burn("child", float(sys.argv[1]))
    while os.getppid() == parent: pass
    sys.stdin.readline()
    burn("after", 0.1)
    os._exit(0)
signal.sigwait({signal.SIGUSR1})
"""


def opened_files(pid):
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield os.readlink(descriptor)
        except FileNotFoundError:  # closed meanwhile
            pass


def await_seen(strobe_pid, pid):
    """Waits until strobe has something of the process open: where the kernel tells of no births, it looks for them."""
    deadline_s = time.monotonic() + harness.TIMEOUT_S
    while not any(f"/{pid}/" in opened + "/" for opened in opened_files(strobe_pid)):
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_children_outlive_the_process_attached_to(any_python, script, tmp_path):
    """`attach --children` goes on until the last of them has ended."""
    path = script(OUTLIVED)
    capture = tmp_path / "capture.strobe"
    with Target(any_python, path, str(SHORT_LIFE_S)) as target:
        attach = [STROBE, "attach", "--children", "--capture", capture, target.pid]
        with subprocess.Popen(list(map(str, attach)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert b"sampling process" in running.stderr.readline()
            target.send()
            said = {}
            while "child" not in said:
                words = target.read_line().split()
                said[words[0]] = words[1:]
            child = int(said["child"][0])
            await_seen(running.pid, child)
            target.process.send_signal(signal.SIGUSR1)
            target.process.wait(timeout=harness.TIMEOUT_S)
            assert running.poll() is None
            target.send()
            assert target.read_line().split()[0] == "after"
            _, words = running.communicate(timeout=harness.TIMEOUT_S)
            assert running.returncode == 0, words
    sampled = Sampled(capture)
    assert sorted(sampled.pids) == sorted([target.pid, child])
    assert {"burn_child", "burn_after"} <= set(sampled.seconds[child])
    assert sampled.last_ns[child] > sampled.ends[target.pid]


EXEC_OF_ANOTHER_THREAD = COMMON + """
import threading
def rest():
    start = time.monotonic()
    time.sleep(0.3)
    os.write(1, f"rested {time.monotonic() - start} 0\\n".encode())
if sys.argv[1:] == ["again"]:
    rest()
    os.waitpid(fork("child", 0.1), 0)
    burn("after", 0.1)
    sys.exit()
def work():
    burn("before", 0.1)
    os.execv(sys.executable, [sys.executable, __file__, "again"])
print("ready 0 0", flush=True)
if sys.argv[1:] == ["attach"]: sys.stdin.readline()
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def assert_went_on(words, capture, root, children=True):
    """The program that a thread other than the first became, and its child, are there with what they say of themselves."""
    said = {name: (first, second) for name, first, second in map(str.split, words.splitlines())}
    child, rested_s = int(said["child"][0]), float(said["rested"][0])
    assert said["before"][0] == said["after"][0] == said["child"][1] == str(root)
    sampled = Sampled(capture)
    assert set(sampled.pids) == ({root, child} if children else {root})
    told = {row["function"]: row for row in strobe("report", "-f", "json", capture).json()["functions"]}
    burned = {name for name in told if name.startswith("burn_")}
    expected = {"burn_before", "burn_after"} | ({"burn_child"} if children else set())
    assert burned <= expected, burned
    for name in expected - burned:
        pid = child if name == "burn_child" else root
        assert sampled.may_miss(pid, root, BURNED_S), (name, sampled.longest_s, sampled.kept_s)
    # What the process is now is looked for after 50 ms at the latest.
    kept_s = sampled.kept_s[root]
    assert rested_s - 0.15 - kept_s <= told["rest"]["total_wait_s"] <= rested_s + 0.02 + kept_s, (told["rest"], kept_s)


@both_ways
def test_an_exec_of_another_thread(python, script, how):
    """It ends the first thread, but not the process."""
    path = script(EXEC_OF_ANOTHER_THREAD)
    capture = path.parent / "capture.strobe"
    result = strobe("run", *how, "--capture", capture, "--", python.path, path, cwd=path.parent)
    assert result.returncode == 0, result
    (root,) = {int(line.split()[1]) for line in result.stdout.splitlines() if line.startswith("after ")}
    assert_went_on(result.stdout, capture, root)


@pytest.mark.parametrize("options", [[], ["--children"]], ids=["alone", "children"])
def test_an_exec_of_another_thread_when_attached(any_python, script, options):
    path = script(EXEC_OF_ANOTHER_THREAD)
    capture = path.parent / "capture.strobe"
    with Target(any_python, path, "attach") as target:
        attach = [STROBE, "attach", *options, "--capture", capture, str(target.pid)]
        with subprocess.Popen(attach, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert b"sampling process" in running.stderr.readline()
            target.send()
            words = "\n".join(target.read_line() for _ in range(4))
            _, errors = running.communicate(timeout=harness.TIMEOUT_S)
            assert running.returncode == 0, errors
    assert_went_on(words, capture, target.pid, children=options != [])


def test_a_held_process_is_let_go(any_python, script):
    """Whether strobe ends by Ctrl-C or is killed, the program runs on, traced by nobody."""
    path = script(COMMON + "print('ready', flush=True)\nwhile True: burn('on', 0.01)\n")

    def tracer(pid):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("TracerPid:")[1].split()[0])

    with Target(any_python, path) as target:
        for number in (signal.SIGINT, signal.SIGKILL):
            command = [STROBE, "attach", "--blocking", "--no-capture", str(target.pid)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
                assert b"sampling process" in running.stderr.readline()
                assert tracer(target.pid) == running.pid
                running.send_signal(number)
                running.communicate(timeout=harness.TIMEOUT_S)
            assert tracer(target.pid) == 0
            target.read_line()
            target.await_cpu_time(target.pid, 2)
