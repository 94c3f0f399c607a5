"""`strobe run --clock perf`: more looks than the kernel ticks, and the program notices them as little as the others."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import time

import pytest
from agent_reader import ENDED, QUIET, Watched
from harness import NO_PERMISSION, TARGETS, USAGE, assert_refuses, strobe
from test_agent import COMMON, assert_sampled, helper, with_helper, without_agents_signal  # noqa: F401 (a fixture)
from test_run_agent import POINTS, TICK_S, Ran, chance

PERF = {"STROBE_AGENT_CLOCK": "perf"}
CLOCK_MONOTONIC_COARSE = 6
KERNEL_TICK_S = time.clock_getres(CLOCK_MONOTONIC_COARSE)

permitted = pytest.mark.skipif(
    strobe("run", "--clock", "perf", "--no-capture", "--quiet", "--", "true").returncode == NO_PERMISSION,
    reason="perf events are not permitted here",
)


@permitted
def test_more_looks_than_ticks(python, tmp_path):
    report, capture = tmp_path / "report.json", tmp_path / "c.strobe"
    kinds = ["burn_python", "burn_zlib", "burn_kernel", "wait_sleep", "wait_often"]
    command = ["--", python.path, TARGETS / "measured.py", 0.3, *kinds]
    result = strobe("run", "--clock", "perf", "--capture", capture, "-o", report, *command, cwd=tmp_path)
    assert result.returncode == 0, result
    ran = Ran(result, report, capture)
    truth = json.loads(result.stdout)["functions"]
    whole = sum(of["cpu_s"] for of in truth.values())
    for name, of in truth.items():
        most_s = ran.looks.bound(4 * TICK_S, edges=2)
        assert ran.cpu(name) == pytest.approx(of["cpu_s"], abs=most_s), name
        assert ran.cpu(name) / whole == pytest.approx(of["cpu_s"] / whole, abs=max(POINTS, most_s / whole)), name
        # Of a thousandth of a second each. A machine that is not always there loses some.
        user_s = of["cpu_s"] - of["system_s"]
        assert KERNEL_TICK_S < 0.003 or user_s < 0.2 or ran.functions(name, "samples") > 1.5 * user_s / KERNEL_TICK_S, name
    # Where the kernel was is found out by its ticks, as ever.
    for name, part in (("burn_python", "python"), ("burn_zlib", "native"), ("burn_kernel", "kernel")):
        system = truth[name]["system_s"] / truth[name]["cpu_s"]
        share = system if part == "kernel" else 1 - system
        looks = min(ran.looks.effective(name), ran.cpu(name) / TICK_S)
        bound = POINTS + chance(share, looks) + ran.looks.edge_s() / ran.cpu(name)
        assert ran.functions(name, part) / ran.cpu(name) == pytest.approx(share, abs=bound), name


@permitted
def test_calls_are_whole(any_python):
    """What other profilers' perf signals cut short: large reads, random bytes; and what waits."""
    size = 256 << 20
    watched = Watched(
        any_python,
        COMMON
        + f"""
import mmap
memory = mmap.mmap(-1, {size})
zero = os.open('/dev/zero', os.O_RDONLY)
counts = [os.readv(zero, [memory]), len(os.getrandom(8 << 20))]
print(json.dumps([counts, told()]), flush=True)
os._exit(0)
""",
        env=PERF,
    )
    counts, (tid, cpu_ns, _) = watched.json()
    assert counts == [size, 8 << 20]
    thread = watched.region.thread(tid)
    assert thread.samples and thread.samples[-1].cpu_ns <= cpu_ns + 10**7


@permitted
def test_as_often_as_can_be(any_python):
    """However often is asked for, the program gets on."""
    watched = Watched(
        any_python, COMMON + "burn(0.2)\nprint(json.dumps(told()))", env={**PERF, "STROBE_AGENT_PERIOD_NS": "1"}
    )
    tid, cpu_ns, _ = watched.json()
    assert watched.region.thread(tid).samples and cpu_ns < 10**9


@permitted
def test_waiting_is_not_interrupted(any_python, helper):  # noqa: F811
    code = with_helper(helper) + "burn(0.1)\nprint(json.dumps(helper.count_interruptions(200)))"
    watched = Watched(any_python, code, env=PERF)
    assert watched.json() == 0
    assert len(watched.region.main.samples) > 50


@permitted
def test_the_program_sees_what_it_sees_alone(any_python):
    script = str(TARGETS / "agent_state.py")
    command = [any_python.path, script]
    alone = subprocess.run(
        command, env={**os.environ, **QUIET}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
    )
    watched = Watched(command=command, env=PERF)
    assert without_agents_signal(watched.json()) == without_agents_signal(json.loads(alone.stdout))


FAMILY = COMMON + """
def work():
    burn(0.1)
    os.write(1, (json.dumps([os.getpid(), *told()]) + chr(10)).encode())
if sys.argv[1:] == ['again']:
    work()
    sys.exit()
for i in range(20):
    thread = threading.Thread(target=burn, args=(0.002,))
    thread.start()
    thread.join()
thread = threading.Thread(target=work)
thread.start()
thread.join()
if os.fork() == 0:
    work()
    os.execv(sys.executable, [sys.executable, '-c', os.environ['SOURCE'], 'again'])
assert os.wait()[1] == 0
# Programs without the agent, at whatever moment of the clock: none may be ended by its signal.
for i in range(60):
    if os.fork() == 0:
        burn(0.0003 * (i % 10))
        os.execv('/bin/true', ['true'])
    assert os.wait()[1] == 0
work()
with open('/proc/self/maps') as file:
    print(json.dumps(sum('perf_event' in line for line in file)))
"""


@permitted
def test_threads_and_children(any_python):
    watched = Watched(any_python, FAMILY, env={**PERF, "SOURCE": FAMILY}, timeout_s=120)
    assert (watched.returncode, watched.stderr) == (0, b""), watched.stderr.decode()
    *said, events = map(json.loads, watched.stdout.splitlines())
    # One for each thread that lives.
    assert events == 1
    assert len(said) == 4
    for pid, tid, cpu_ns, _ in said:
        threads = [region.thread(tid) for region in watched.of_pid(pid)]
        samples = [sample for thread in threads for sample in thread.samples]
        assert abs(samples[-1].cpu_ns - cpu_ns) < 60 * 10**6 or len(threads) > 1
        if KERNEL_TICK_S > 0.003:
            assert len(samples) > 1.5 * 0.1 / KERNEL_TICK_S


# struct sock_filter (linux/filter.h): the system call's number is not perf_event_open, or EPERM.
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}.get(os.uname().machine)
FILTER = struct.pack(
    "HBBIHBBIHBBIHBBI",
    *(0x20, 0, 0, 0),
    *(0x15, 0, 1, PERF_EVENT_OPEN or 0),
    *(0x06, 0, 0, 0x00050001),
    *(0x06, 0, 0, 0x7FFF0000),
)


def forbid():
    """As a container does."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(FILTER, len(FILTER))
    program = struct.pack("HxxxxxxP", len(FILTER) // 8, ctypes.addressof(buffer))
    PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0) == 0


def test_where_they_are_forbidden(tmp_path):
    command = ["run", "--clock", "perf", "--", sys.executable, "-c", "print(1)"]
    result = strobe(*command, cwd=tmp_path, preexec_fn=forbid)
    assert_refuses(result, NO_PERMISSION)
    assert "perf_event" in result.stderr and list(tmp_path.iterdir()) == []


def test_a_thread_that_gets_none(any_python):
    """It has its CPU clock all the same."""
    watched = Watched(
        any_python, COMMON + "burn_until_seen(0.3)\nprint(json.dumps(told()))", env=PERF, preexec_fn=forbid
    )
    tid, *end = watched.json()
    assert (watched.region.header["state"], watched.region.header["no_event"]) == (ENDED, 1)
    assert_sampled(watched.region.thread(tid), *end)


WITHOUT_DESCRIPTORS = COMMON + """
import resource
thread = threading.Thread(target=burn, args=(0.1,))
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
thread.start()
thread.join()
"""


@permitted
def test_a_thread_that_gets_none_is_told_of(any_python, tmp_path):
    command = ["run", "--clock", "perf", "--no-capture", "--quiet", "--", any_python.path, "-c", WITHOUT_DESCRIPTORS]
    result = strobe(*command, cwd=tmp_path)
    assert result.returncode == 0 and "strobe: 1 threads of process" in result.stderr, result


@pytest.mark.parametrize("options", [["--clock", "wall"], ["--clock", "perf", "--no-agent"]])
def test_what_makes_no_sense(options):
    assert_refuses(strobe("run", *options, "--", "true"), USAGE)
