"""`strobe attach` and what follows from it: what is reported is held against what the targets measured themselves."""

import fcntl
import os
import re
import resource
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager

import harness
import pytest
from harness import SANITIZER_REPORT, Target, assert_refuses, strobe

# Fast enough that the shares of functions that run for a second have no noise to speak of.
RATE_HZ = 2000


class Attached:
    """A `strobe attach` that has begun to sample."""

    def __init__(self, target, *options, folder):
        command = [str(harness.STROBE), "attach", *map(str, options), str(target.pid)]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.begun = self.read_line()
        assert re.fullmatch(rf"strobe: sampling process {target.pid} .*\n", self.begun), self.begun
        self.begun_s = time.monotonic()

    def read_line(self):
        """The next line of standard error, byte by byte: communicate() wants the rest."""
        line = b""
        descriptor = self.process.stderr.fileno()
        while not line.endswith(b"\n") and select.select([descriptor], [], [], harness.TIMEOUT_S)[0]:
            part = os.read(descriptor, 1)
            if not part:
                break
            line += part
        return line.decode()

    def finish(self):
        output, errors = self.process.communicate(timeout=harness.TIMEOUT_S)
        result = harness.Result(self.process.returncode, output.decode(), errors.decode())
        assert not SANITIZER_REPORT.search(result.stderr), result.stderr
        return result

    def json(self):
        """The report, which options -f json made."""
        return self.finish().json()


@contextmanager
def attached(target, *options, folder):
    running = Attached(target, *options, folder=folder)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        running.process.stdout.close()
        running.process.stderr.close()


def report(capture, *options):
    """`strobe report -f json` of a whole capture, parsed."""
    return strobe("report", "-f", "json", *options, capture).json()


def function_of(told, name):
    found = [function for function in told["functions"] if function["function"] == name]
    assert len(found) == 1, f"{name} is there {len(found)} times"
    return found[0]


def thread_of(told, native_id):
    found = [thread for thread in told["threads"] if thread["native_id"] == native_id]
    assert len(found) == 1, f"thread {native_id} is there {len(found)} times"
    return found[0]


def nearly(seen, expected_s, rel):
    """That many seconds. Before its first and after its last look strobe sees nothing; on a busy machine that is as long as it
    was kept from looking, at the most, which the looks say that it missed."""
    kept_s = seen["samples"]["missed"] / seen["rate_hz"]
    return pytest.approx(expected_s, abs=rel * expected_s + kept_s)


def run_mix(python, folder, *options, seconds=0.3):
    """(what the target measured, what strobe reported) of the whole run of a mix.py."""
    with Target(python, "mix.py", seconds) as target:
        target.await_sleep(target.said["native_id"])
        with attached(target, "-r", RATE_HZ, "-f", "json", "--no-capture", *options, folder=folder) as running:
            target.send()
            told = target.read()
            return told, running.json()


MIX = {"one": "one", "two": "two", "three": "three"}


def shares(amounts):
    whole = sum(amounts.values())
    return {name: amount / whole for name, amount in amounts.items()}


def assert_shares(told, seen, measure, clock, points):
    """The functions' shares are within so many points of the truth, and what was missed of it: that is charged to what was seen
    next. The clock is what the target measured them with."""
    bound = points / 100 + seen["samples"]["missed"] / (seen["rate_hz"] * seen["elapsed_s"])
    truth = shares({name: told["spent"][name][clock] for name in MIX})
    measured = shares({name: function_of(seen, name)["total_" + measure] for name in MIX})
    for name in MIX:
        assert measured[name] == pytest.approx(truth[name], abs=bound), (truth, measured, seen["samples"])


def test_wall_time_is_where_the_target_spent_it(python, tmp_path):
    told, seen = run_mix(python, tmp_path)
    # Every sample falls at a random place of its own period, so that the error of a share over 600 samples is less than
    # that of as many independent draws: 2 points. When the system takes the processor away, both clocks go on.
    assert_shares(told, seen, "wall_s", clock=1, points=5)
    main, burner, sleeper = (thread_of(seen, told[who]) for who in ("native_id", "burner", "sleeper"))
    assert (main["name"], burner["name"], sleeper["name"]) == ("MainThread", "burner", "sleeper")
    # Each thread's samples stand for all of the time that it was sampled, to the last deadline before the end.
    for thread in (main, burner, sleeper):
        assert thread["sampled"]["wall_s"] == nearly(seen, seen["elapsed_s"], rel=0.05)
    # And that is at least as long as the work took.
    assert main["sampled"]["wall_s"] >= told["wall_ns"] / 1e9 * 0.95 - seen["samples"]["missed"] / RATE_HZ
    # What waits is waiting, and not the others.
    assert sleeper["sampled"]["wait_s"] == pytest.approx(sleeper["sampled"]["wall_s"], rel=0.02)
    work = function_of(seen, "measure")
    assert work["total_wall_s"] == nearly(seen, (told["wall_ns"] + told["spent"]["other"][1]) / 1e9, rel=0.05)


def test_cpu_time_is_what_the_threads_used(python, tmp_path):
    told, seen = run_mix(python, tmp_path, "--mode", "cpu", seconds=0.5)
    # On a busy machine the clock of a thread is brought up to date when it is taken from its processor, all that it ran
    # for at once (a time slice of some 4 ms), and is charged to where it stands then: 125 draws, together 4.4 points.
    assert_shares(told, seen, "cpu_s", clock=0, points=18)
    main, burner = (thread_of(seen, told[who]) for who in ("native_id", "burner"))
    # The kernel's own count, which strobe reads, is brought up to date every 4 ms or so (its tick); what comes after the last
    # look is in no sum.
    missed_s = seen["samples"]["missed"] / RATE_HZ
    for thread, cpu_ns in ((main, told["cpu_ns"]), (burner, told["beside"]["cpu_ns"])):
        assert thread["cpu_s"] == pytest.approx(cpu_ns / 1e9, rel=0.05, abs=0.01 + missed_s)
        assert thread["sampled"]["self_cpu_s"] == pytest.approx(cpu_ns / 1e9, rel=0.05, abs=0.02 + missed_s)
    # One that is found ready to run is charged with 10 ms more than it used before its clock says that it does not; each of some
    # twenty samples is rounded to a tick of 10 us.
    for thread in (thread for thread in seen["threads"] if thread["native_id"] == told["sleeper"]):
        assert thread["sampled"]["self_cpu_s"] <= thread["cpu_s"] + 0.0102


def test_modes(python, tmp_path):
    """gil, --blocking and --native."""
    with Target(python, "mix.py", 1000) as target:
        target.send()
        target.await_cpu_time(target.said["native_id"], ticks=2)
        gil = strobe("attach", "-d", "0.3", "-f", "json", "--mode", "gil", "--no-capture", "-r", RATE_HZ, target.pid)
        blocking = strobe("attach", "-d", "0.3", "-f", "json", "--blocking", "--no-capture", target.pid).json()
        native = strobe("attach", "-d", "0.3", "-f", "collapsed", "--native", "--idle", "--no-capture", target.pid)
        # It runs on when strobe is gone.
        target.await_cpu_time(target.said["native_id"], ticks=2)
    if python.free_threaded:
        assert gil.returncode == harness.USAGE and "without the GIL" in gil.stderr
    else:
        gil = gil.json()
        seen = {thread["native_id"]: thread["sampled"].get("samples", 0) for thread in gil["threads"]}
        assert seen[target.said["native_id"]] > 0 and seen[target.said["burner"]] > 0
        # One thread at a time has it.
        assert sum(thread["sampled"]["wall_s"] for thread in gil["threads"]) <= gil["elapsed_s"] * 1.05
        assert seen.get(target.said["sleeper"], 0) == 0
    assert blocking["samples"]["inconsistent"] == 0
    assert blocking["samples"]["taken"] > 0
    assert function_of(blocking, "sleep")["total_wait_s"] == nearly(blocking, blocking["elapsed_s"], rel=0.1)
    assert native.returncode == harness.OK
    assert not any(line.startswith("<native>") for line in native.stdout.splitlines())


COLLECTING = """
import gc, os
keep = [[i] for i in range(100000)]
def inner(x): return sum(range(30)) + x
def collecting(): gc.collect()
def sorting(): sorted(range(300), key=inner)
os.write(1, b"ready\\n")
while True:
    collecting()
    for i in range(200): sorting()
"""


def test_what_is_no_python_frame(python, script, tmp_path):
    """The collector is a frame on top of what called it, and C one between Python frames, where these can be seen."""
    with Target(python, script(COLLECTING)) as target:
        with attached(target, "--native", "-f", "collapsed", "--no-capture", folder=tmp_path) as running:
            # Several rounds.
            target.await_cpu_time(target.pid, ticks=40)
            running.process.send_signal(signal.SIGINT)
            told = running.finish()
    assert told.returncode == harness.OK
    stacks = {tuple(frame.split(":")[1] if ":" in frame else frame for frame in line.rsplit(" ", 1)[0].split(";"))
              for line in told.stdout.splitlines()}  # fmt: skip
    # Where there is no GIL, it is not known which thread collects; 3.15 says it.
    assert (("<module>", "collecting", "<GC>") in stacks) == (not python.free_threaded or python.at_least(3, 15))
    between = {stack[2:-1] for stack in stacks if stack[:2] == ("<module>", "sorting") and stack[-1] == "inner"}
    assert between == {("<native>",) if python.at_least(3, 12) else ()}


def test_code_that_comes_and_goes(python, tmp_path):
    """No line is ever charged to the wrong file, and strobe's memory stays flat."""
    with Target(python, "churn.py") as target:
        with attached(target, "-d", 1, "-r", 5000, "-f", "json", "--all", "--no-capture", folder=tmp_path) as running:
            sizes = [memory_of(running.process.pid)]
            while running.process.poll() is None and not select.select([running.process.stdout], [], [], 0.1)[0]:
                sizes.append(memory_of(running.process.pid))
            seen = running.json()
    for file in seen["files"]:
        number = re.fullmatch(r"/nowhere/(\d+)\.py", file["path"])
        for line in file["lines"]:
            name = re.fullmatch(r"f(\d+)", line["function"])
            if number is None:
                assert name is None, (file["path"], line)
            elif line["function"] != "<module>":
                assert name and name[1] == number[1], (file["path"], line)
                assert int(number[1]) * 10 <= line["line"] <= int(number[1]) * 10 + 8, (file["path"], line)
    # What is known of dead code is dropped when it was of 2000 functions, some 5 MiB.
    settled = [size for size in sizes if size > 0][len(sizes) // 3 :]
    # AddressSanitizer keeps what was freed for a while.
    if not harness.SANITIZED:
        assert max(settled) - settled[0] <= 16 << 20, sizes
        assert max(settled) <= 24 << 20, sizes


def test_code_that_runs_once(python, tmp_path):
    """Little is dropped of a program that imports: nothing that it does was seen before, and C code is in between."""
    with Target(python, "fresh.py") as target:
        seen = strobe("attach", "-d", 1, "-f", "json", "--no-capture", target.pid, cwd=tmp_path).json()
    samples = seen["samples"]
    # 0 to 0.4 % of the looks, where 2 to 8 % were when a look was given up soon.
    assert samples["inconsistent"] <= 3 + 0.015 * samples["taken"], samples


def test_deep_stacks_of_new_code(python, tmp_path):
    """The same where the stacks are deep and each frame is of a function that was just made: what must be seen several
    times is seen in few looks, however much it is."""
    if not python.at_least(3, 11):
        pytest.skip("functions cannot be renewed like that, and frames are linked")
    with Target(python, "renewed.py", 80) as target:
        seen = strobe("attach", "-d", 1, "-r", 500, "-f", "json", "--no-capture", target.pid, cwd=tmp_path).json()
    samples = seen["samples"]
    # 0 to 0.2 % of the looks, where 68 to 80 % were when one frame after the other was seen again. On a busy machine
    # there are few looks, and some of them are interrupted.
    assert samples["inconsistent"] <= 3 + 0.03 * samples["taken"], samples


def test_frames_larger_than_what_is_read_ahead(python, tmp_path):
    """What of a frame was not copied is not remembered, either (AddressSanitizer sees it for certain)."""
    with Target(python, "large_frames.py") as target:
        with attached(target, "-r", 5000, "-f", "json", "--all", "--no-capture", folder=tmp_path) as running:
            target.await_cpu_time(target.pid, ticks=50)
            running.process.send_signal(signal.SIGINT)
            seen = running.json()
    assert function_of(seen, "large")["samples"] > 0


def memory_of(pid):
    """Resident bytes; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def test_a_thousand_threads_at_once(any_python, tmp_path):
    with Target(any_python, "thousand.py", 1000) as target:
        seen = strobe("attach", "-d", "0.5", "-r", "100", "-f", "json", "--no-capture", target.pid, cwd=tmp_path).json()
    names = {thread["name"] for thread in seen["threads"]}
    assert names == {"MainThread"} | {f"thread {i}" for i in range(1000)}
    assert len(seen["threads"]) == 1001
    # The last look is after the time is over, and what it takes itself is nobody's. A capture's weights are whole ticks, of
    # 0.2 ms at this rate; what is over is carried on, and not said of the last one.
    assert 1000 * (0.5 - 2 * 0.0002) <= function_of(seen, "leaf")["total_wait_s"] <= 1000 * seen["elapsed_s"]


# ---------------------------------------------------------------------------------------------- the end of it


SIGNALLED = """
import os
os.write(1, b"ready\\n")
def work():
    while True:
        sum(range(10000))
work()
"""


@pytest.fixture
def script(tmp_path):
    """script(text): the path of a program."""

    def write(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_the_sampling_and_not_the_report(any_python, script, tmp_path, number):
    with Target(any_python, script(SIGNALLED)) as target:
        with attached(target, folder=tmp_path) as running:
            target.await_cpu_time(target.pid, ticks=5)
            running.process.send_signal(number)
            result = running.finish()
        assert target.process.poll() is None
    assert result.returncode == harness.OK, result
    assert "work" in result.stdout
    capture = tmp_path / f"program-{target.pid}.strobe"
    assert f"program-{target.pid}.strobe" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "work" in strobe("report", capture).stdout


def test_a_key_that_stops_strobe_does_not_stop_its_target(any_python, script, tmp_path):
    """A signal to a process that is traced waits for who traces it."""
    with Target(any_python, script(SIGNALLED)) as target:
        with attached(target, "--blocking", folder=tmp_path) as running:
            target.await_cpu_time(target.pid, ticks=5)
            running.process.send_signal(signal.SIGTSTP)
            target.process.terminate()
            assert target.process.wait(harness.TIMEOUT_S) == -signal.SIGTERM
            assert running.finish().returncode == harness.OK


def test_a_signal_does_not_cut_what_is_being_written(any_python, script, tmp_path):
    """Of a stack of 200 functions there is more to tell than the pipe takes."""
    functions = "".join(f"def a_function_of_many_{i}(): a_function_of_many_{i + 1}()\n" for i in range(200))
    deep = script(f"{functions}{SIGNALLED.replace('work', 'a_function_of_many_200')}a_function_of_many_0()\n")
    deep.write_text(deep.read_text().replace("\na_function_of_many_200()\n", "\n"))
    options = ["-d", "0.3", "-f", "gecko", "--no-capture"]
    with Target(any_python, deep) as target, attached(target, *options, folder=tmp_path) as running:
        output, waiting = running.process.stdout, bytearray(4)
        room = fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, 4096)
        deadline_s = time.monotonic() + harness.TIMEOUT_S
        while int.from_bytes(waiting, sys.byteorder) < room:
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
            fcntl.ioctl(output, termios.FIONREAD, waiting)
        running.process.send_signal(signal.SIGINT)
        result = running.finish()
    assert (result.returncode, result.stderr) == (harness.OK, "")
    assert result.json()["threads"]


# ---------------------------------------------------------------------------------------------- the capture


def test_a_script_that_was_called_by_a_relative_name(python, script, tmp_path):
    path = script(SIGNALLED)
    process = subprocess.Popen([python.path, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        seen = strobe("attach", "-d", "0.1", "--no-capture", "-f", "json", process.pid, cwd="/").json()
        shown = strobe("attach", "-d", "0.1", "--no-capture", process.pid, cwd="/").stdout
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert function_of(seen, "work")["path"] == str(path)
    assert "sum(range(10000))" in shown, "the source was found"


def test_what_is_not_told_to_be_python_is_shown_live_alone(any_python, script, tmp_path):
    """A report may be passed on; what runs before one's eyes is no secret of anybody's."""
    with Target(any_python, script(SIGNALLED, "program")) as target:
        target.await_cpu_time(target.pid, ticks=5)
        dump = strobe("dump", target.pid).stdout
        table = strobe("attach", "-d", "0.2", "--no-capture", target.pid).stdout
    assert "sum(range(10000))" in dump
    assert "sum(range(10000))" not in table and "work" in table


# ---------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    "arguments",
    [
        ["attach"],
        ["attach", "1", "2"],
        ["attach", "no-number"],
        ["attach", "-f", "no-such-format", "1"],
        ["attach", "-r", "0", "1"],
        ["attach", "-r", "many", "1"],
        ["attach", "-r", "1e-20", "1"],
        ["attach", "-r", "nan", "1"],
        ["attach", "-d", "-1", "1"],
        ["attach", "-d", "1e-20", "1"],
        ["attach", "--mode", "no-mode", "1"],
        ["attach", "--no-such-option", "1"],
        ["attach", "--lines", "0", "1"],
        ["report"],
        ["report", "-f", "no-such-format", "x"],
        ["diff", "one"],
        ["diff", "-f", "svg", "one", "two"],
        ["merge", "one"],
        ["merge", "-o", "two"],
    ],
    ids=" ".join,
)
def test_usage(arguments, tmp_path):
    assert_refuses(strobe(*arguments, cwd=tmp_path), harness.USAGE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["attach", "report", "diff", "merge"])
def test_help(command):
    result = strobe(command, "--help")
    assert result.returncode == harness.OK
    assert result.stdout.startswith(f"Usage: strobe {command} ")
    assert max(map(len, result.stdout.splitlines())) <= 90
    assert command in strobe("--help").stdout


def test_waiting_is_not_busy(any_python, tmp_path):
    """Up to 10 kHz strobe sleeps between its looks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Target(any_python, "ready.py") as target:
        seen = strobe("attach", "-r", 10_000, "-d", 1, "-f", "json", "--no-capture", target.pid, cwd=tmp_path).json()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # A tenth of a processor; with what starting up and the report take.
    assert used_s < 0.6 * seen["elapsed_s"] or harness.SANITIZED


# For how long the system lets a thread run before others that wait have their turn: struct sched_attr's sched_runtime.
TURN = """
import ctypes, os, struct
def turn_ns(pid):
    attributes = ctypes.create_string_buffer(56)
    number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
    assert ctypes.CDLL(None).syscall(number, pid, attributes, len(attributes), 0) == 0
    return struct.unpack_from("=Q", attributes, 24)[0]
"""
SAYS_TURN = TURN + """
print(turn_ns(0), flush=True)
while turn_ns(os.getppid()) != 100_000:
    pass
print(turn_ns(0), flush=True)
"""
turn_of = {}
exec(TURN, turn_of)


def test_looks_do_not_wait_for_the_end_of_what_runs(any_python, script, tmp_path):
    """The system gives strobe a processor as soon as it wakes up; and what it starts is as it would be without."""
    turn_ns = turn_of["turn_ns"]
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 12):
        pytest.skip("the system has no short turns")
    own_ns = turn_ns(0)
    with Target(any_python, script(SIGNALLED)) as target:
        with attached(target, "--no-capture", "-d", 1, folder=tmp_path) as running:
            target.await_cpu_time(target.pid, ticks=20)
            assert turn_ns(running.process.pid) == 100_000
            assert turn_ns(target.pid) == own_ns
            running.finish()
    options = ["--no-agent", "--no-capture", "-o", os.devnull, "--"]
    said = strobe("run", *options, any_python.path, script(SAYS_TURN, "says.py"), cwd=tmp_path).stdout
    assert said.split() == [str(own_ns)] * 2


def test_each_thread_by_itself(python, tmp_path):
    with Target(python, "mix.py", 1000) as target:
        target.send()
        target.await_cpu_time(target.said["native_id"], ticks=2)
        capture = tmp_path / "c.strobe"
        table = strobe("attach", "-d", "0.2", "--threads", "--capture", capture, target.pid).stdout
    heads = re.findall(r"^thread (.+) \((\d+)\)$", table, re.M)
    names = {"native_id": "MainThread", "burner": "burner", "sleeper": "sleeper"}
    assert sorted(heads) == sorted((name, str(target.said[key])) for key, name in names.items())
    parts = re.split(r"^thread .+$", table, flags=re.M)[1:]
    assert "finished.wait" in parts[heads.index(("sleeper", str(target.said["sleeper"])))]


def test_no_such_process(tmp_path):
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    assert_refuses(strobe("attach", ended.pid, cwd=tmp_path), harness.NO_PROCESS)
    assert list(tmp_path.iterdir()) == []


def test_no_python(tmp_path):
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as cat:
        assert_refuses(strobe("attach", cat.pid, cwd=tmp_path), harness.NOT_PYTHON)
        cat.stdin.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_permission(any_python, public_folder):
    binary = harness.copy_for_everyone(harness.STROBE, public_folder)
    with Target(any_python, "ready.py") as target:
        result = strobe("attach", target.pid, binary=binary, user=65534, group=65534, extra_groups=[], cwd="/tmp")
    assert_refuses(result, harness.NO_PERMISSION)


def test_too_few_files_are_said(any_python, script, tmp_path):
    """Whatever it is that cannot be opened, the limit is named."""
    program = script(SIGNALLED)
    said = set()
    with Target(any_python, program) as target:
        for limit in range(5, 20):
            limited = ["sh", "-c", f'ulimit -n {limit} && exec "$0" "$@"', str(harness.STROBE)]
            attach = [*limited, "attach", "-d", "0.01", "--quiet", "--no-capture", str(target.pid)]
            dump = [*limited, "dump", str(target.pid)]
            for command in (attach, dump):
                result = subprocess.run(command, capture_output=True, text=True, timeout=harness.TIMEOUT_S)
                if result.returncode == harness.OK:
                    told = r"strobe: too many open files: when 1 thread [^\n]*'ulimit -Hn'[^\n]*\n"
                    assert re.fullmatch(told if command is attach else "", result.stderr), (limit, result)
                    assert "work" in result.stdout
                else:
                    assert re.fullmatch(r"strobe: [^\n]*[Tt]oo many open files[^\n]*\n", result.stderr), (limit, result)
                said.add((command[4], result.returncode))
    assert said == {(command, status) for command in ("attach", "dump") for status in (harness.OK, harness.FAILED)}
