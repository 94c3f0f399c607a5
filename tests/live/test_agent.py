"""The agent in a program: every thread of every process samples itself, and the program does not notice.

What the agent wrote is read by agent_reader.py; what is true is said by the program itself and by the kernel."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from agent_reader import (
    AGENT,
    ENDED,
    OFF,
    PAUSE,
    QUIET,
    RING_BYTES,
    RINGS_OFFSET,
    SAMPLE,
    SAMPLING,
    SLOT_BYTES,
    SLOT_FREE,
    SLOT_LIVE,
    SLOTS,
    SLOTS_OFFSET,
    Watched,
    header_of,
)
from harness import ENDING_S, TARGETS

NS_PER_S = 10**9
PERIOD_NS = 10**6
# What the last sample may leave out: the kernel looks at CPU clocks at its ticks only, HZ (at least 100) times a
# second. A thread that shares its processor misses some, for up to half a second of its CPU time: so programs go on until
# they are seen.
UNSAMPLED_NS = 60 * 10**6
# From a thread's own last word to the end of its slot, where no interpreter is finalised in between. What is counted twice is
# 100 ms and more.
ENDING_NS = int(ENDING_S * NS_PER_S)

# The bit of the agent's signal in the masks of /proc/PID/status.
AGENT_SIGNAL = 32

COMMON = f"""
import json, os, signal, struct, sys, threading, time

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(500))

# The region's file (src/wire/region.h).
def open_region():
    paths = ["%s/%d-%d.region" % (os.environ["STROBE_AGENT_FOLDER"], os.getpid(), number) for number in range(3)]
    return os.open([path for path in paths if os.path.exists(path)][-1], os.O_RDONLY)

# Where in it this thread's slot is.
def find_slot(fd):
    slots = os.pread(fd, {SLOTS * SLOT_BYTES}, {SLOTS_OFFSET})
    own = struct.pack("II", {SLOT_LIVE}, threading.get_native_id())
    (place,) = [at for at in range(0, len(slots), {SLOT_BYTES}) if slots[at:at + 8] == own]
    return {SLOTS_OFFSET} + place

# Until the clock strikes after that: what is used then and is not told is little.
def burn_until_seen(seconds, region=None):
    burn(seconds)
    fd = open_region() if region is None else region
    place = find_slot(fd)
    before = os.pread(fd, 8, place + 64)
    while os.pread(fd, 8, place + 64) == before:
        sum(range(500))
    if region is None:
        os.close(fd)

# The moment is read first: a sample that is not later has no later time of the CPU clock either.
def told():
    now = time.monotonic_ns()
    return [threading.get_native_id(), time.thread_time_ns(), now]
"""


@pytest.fixture(scope="session")
def helper(tmp_path_factory):
    """The library made of targets/agent_threads.c."""
    path = tmp_path_factory.mktemp("helper") / "agent_threads.so"
    source = TARGETS / "agent_threads.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", path, source], check=True)
    return path


def with_helper(helper):
    return COMMON + f"""
import ctypes
helper = ctypes.CDLL({str(helper)!r})
class Told(ctypes.Structure):
    _fields_ = [("tid", ctypes.c_int64), ("cpu_ns", ctypes.c_int64)]
"""


def assert_sampled(thread, cpu_ns, time_ns=None):
    """The samples account for the CPU time that the thread had used when it looked at its clock itself. When that was is to be
    said of one that goes on: an interpreter that is finalised uses as much as it likes."""
    assert thread.lost == 0
    stamps = [(sample.time_ns, sample.cpu_ns) for sample in thread.samples]
    assert stamps == sorted(stamps)
    samples = [sample for sample in thread.samples if time_ns is None or sample.time_ns <= time_ns]
    assert samples
    assert cpu_ns - UNSAMPLED_NS < samples[-1].cpu_ns <= cpu_ns + (ENDING_NS if time_ns is None else 0)
    # Each sample and each overrun is one period; the first may begin, and the last sample be written, within one.
    periods = sum(1 + sample.overruns for sample in samples)
    assert abs(periods - (samples[-1].cpu_ns - thread.fields["start_cpu_ns"]) / PERIOD_NS) <= 2


def assert_ended(thread, cpu_ns):
    assert thread.ended
    assert cpu_ns <= thread.fields["end_cpu_ns"] < cpu_ns + ENDING_NS
    assert thread.fields["start_ns"] <= thread.samples[-1].time_ns <= thread.fields["end_ns"]


def test_each_thread_on_its_own_clock(python):
    watched = Watched(
        python,
        COMMON
        + """
ends = []
def work(seconds):
    burn_until_seen(seconds)
    ends.append(told())
threads = [threading.Thread(target=work, args=(seconds,)) for seconds in (0.1, 0.2, 0.3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
work(0.1)
print(json.dumps({"version": sys.hexversion, "ends": ends}))
""",
    )
    said = watched.json()
    region = watched.region
    assert region.header["state"] == ENDED
    assert region.header["pid"] == watched.process.pid
    assert region.header["parent_pid"] == os.getpid()
    assert region.header["began_in"] == os.getcwd()
    assert region.header["forked"] == 0
    assert region.header["no_slot"] == 0
    assert region.header["python_version"] == said["version"]
    assert {thread.tid for thread in region.threads} == {tid for tid, *_ in said["ends"]}
    for tid, *end in said["ends"]:
        assert_sampled(region.thread(tid), *end)
    for tid, cpu_ns, _ in said["ends"][:-1]:
        assert_ended(region.thread(tid), cpu_ns)


def test_waiting_costs_no_sample(python):
    watched = Watched(
        python,
        COMMON
        + """
def wait():
    time.sleep(0.5)
    print(json.dumps(told()), flush=True)
thread = threading.Thread(target=wait)
thread.start()
burn(0.2)
thread.join()
""",
    )
    tid, cpu_ns, time_ns = watched.json()
    assert cpu_ns < 50 * 10**6
    # The first comes at a random moment of the first period. How it ends may cost some more.
    assert sum(sample.time_ns <= time_ns for sample in watched.region.thread(tid).samples) <= cpu_ns / PERIOD_NS + 1


def test_threads_come_and_go(python):
    watched = Watched(
        python,
        COMMON
        + """
COUNT, AT_ONCE = 2000, 20
for _ in range(COUNT // AT_ONCE):
    threads = [threading.Thread(target=int) for _ in range(AT_ONCE)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
# join returns before the thread has ended for the kernel.
while len(os.listdir('/proc/self/task')) > 1:
    os.sched_yield()
with open('/proc/self/timers') as file:
    timers = [line for line in file if line.startswith('ID')]
with open('/proc/self/maps') as file:
    mapped = [line for line in file if '.region' in line]
print(json.dumps({"timers": len(timers), "mapped": len(mapped), "count": COUNT}))
""",
    )
    said = watched.json()
    region = watched.region
    assert said["timers"] == 1
    # The region's head, and a ring for each of its slots: the reader here is slow, so that all may be taken.
    assert said["mapped"] <= 1 + 1024
    # A thread that found all slots taken is not lost sight of.
    assert len(region.threads) + region.header["no_slot"] == said["count"] + 1
    assert len(region.threads) >= 1024
    assert all(thread.ended for thread in region.threads)
    assert set(region.states()) == {SLOT_FREE}


@pytest.mark.parametrize("how", ["return", "exit", "cancel", "async cancel"])
def test_threads_that_python_does_not_know(any_python, helper, how):
    watched = Watched(
        any_python,
        with_helper(helper)
        + """
COUNT = 8
ends = (Told * COUNT)()
cancelled = helper.run_threads(COUNT, ctypes.c_char(sys.argv[1].encode()), ctypes.c_int64(100 * 10**6), ends)
# Sampling goes on after libc has set its own handler for cancelling.
burn_until_seen(0.2)
with open('/proc/self/timers') as file:
    timers = [line for line in file if line.startswith('ID')]
print(json.dumps({"ends": [[told.tid, told.cpu_ns] for told in ends], "cancelled": cancelled,
                  "main": told(), "timers": len(timers)}))
""",
        how[0],
    )
    said = watched.json()
    region = watched.region
    assert said["timers"] == 1
    assert said["cancelled"] == (8 if "cancel" in how else 0)
    assert {thread.tid for thread in region.threads} == {tid for tid, *_ in said["ends"] + [said["main"]]}
    tid, *end = said["main"]
    assert_sampled(region.thread(tid), *end)
    for tid, cpu_ns in said["ends"]:
        thread = region.thread(tid)
        if how == "async cancel":
            # It used CPU time until it was cancelled.
            assert thread.ended and thread.fields["end_cpu_ns"] >= cpu_ns
        else:
            assert_sampled(thread, cpu_ns)
            assert_ended(thread, cpu_ns)


@pytest.mark.parametrize("function, result", [("run_small_stack", 0), ("run_c11_thread", 7)])
def test_unusual_threads(any_python, helper, function, result):
    watched = Watched(
        any_python,
        with_helper(helper)
        + """
end = Told()
result = getattr(helper, sys.argv[1])(ctypes.c_int64(100 * 10**6), ctypes.byref(end))
print(json.dumps([result, end.tid, end.cpu_ns]))
""",
        function,
    )
    returned, tid, cpu_ns = watched.json()
    assert returned == result
    assert_sampled(watched.region.thread(tid), cpu_ns)
    assert_ended(watched.region.thread(tid), cpu_ns)


CHILDREN = {
    "fork": "os.fork() or (work(), os._exit(0))",
    "fork in a thread": "in_thread(lambda: os.fork() or (work(), os._exit(0)))",
    "fork twice": "os.fork() or (work(), os.fork() or (work(), os._exit(0)), os.wait(), os._exit(0))",
    "exec": "subprocess.run([sys.executable, '-c', source])",
    "vfork": "helper.vfork_exec(command[0], (ctypes.c_char_p * 4)(*command))",
    "spawn": "os.posix_spawn(sys.executable, [sys.executable, '-c', source], os.environ)",
    "system": "os.system(sys.executable + ' -c \"$SOURCE\"')",
    "fork and exec": "os.fork() or (work(), os.execv(sys.executable, [sys.executable, '-c', source]))",
    "env": "subprocess.run(['env', sys.executable, '-c', source])",
    "multiprocessing fork": "multiprocess('fork')",
    "multiprocessing spawn": "multiprocess('spawn')",
    "multiprocessing forkserver": "multiprocess('forkserver')",
}

PARENT = """
import multiprocessing, subprocess
source = os.environ['SOURCE']
command = [part.encode() for part in (sys.executable, '-c', source)]
exec(source.partition('# main')[0])

def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()

def multiprocess(method):
    child = multiprocessing.get_context(method).Process(target=exec, args=(source, {}))
    child.start()
    child.join()
    assert child.exitcode == 0

if __name__ == '__main__':
    work()
    eval(os.environ['CHILD'])
    # multiprocessing has helpers that live as long as this.
    while 'multiprocess' not in os.environ['CHILD']:
        try:
            assert os.wait()[1] == 0
        except ChildProcessError:
            break
    work()
"""

WORK = """
def work():
    burn_until_seen(0.1)
    os.write(1, (json.dumps([os.getpid(), *told()]) + chr(10)).encode())
# main
work()
"""


@pytest.mark.parametrize("child", CHILDREN)
def test_children(any_python, helper, tmp_path, child):
    script = tmp_path / "parent.py"
    script.write_text(with_helper(helper) + PARENT)
    environment = {"CHILD": CHILDREN[child], "SOURCE": COMMON + WORK}
    watched = Watched(command=[any_python.path, script], env=environment)
    assert (watched.returncode, watched.stderr) == (0, b""), watched.stderr.decode()
    said = [json.loads(line) for line in watched.stdout.splitlines()]
    pids = {pid for pid, *_ in said}
    assert len(pids) >= 2
    assert pids <= {region.header["pid"] for region in watched.regions.values()}
    for pid in pids:
        tid, *end = [words for told_by, *words in said if told_by == pid][-1]
        regions = watched.of_pid(pid)
        # An exec begins another region, in which the clock goes on.
        assert_sampled(regions[-1].thread(tid), *end)
        if child == "fork and exec" and pid != watched.process.pid:
            assert [path for path in sorted(watched.regions) if path.startswith(f"{pid}-")] == [
                f"{pid}-0.region",
                f"{pid}-1.region",
            ]
            assert [region.header["forked"] for region in regions] == [1, 0]
        else:
            assert len(regions) == 1
        # What is in a region is its process's own.
        for region in regions:
            stamps = [sample.time_ns for thread in region.threads for sample in thread.samples]
            assert all(stamp >= region.header["start_ns"] for stamp in stamps)
            if "thread" not in child or region.header["forked"]:
                assert {thread.tid for thread in region.threads} == {pid} or "multiprocessing" in child


def test_forked_children_of_every_version(python):
    watched = Watched(
        python,
        COMMON
        + """
def work():
    burn_until_seen(0.1)
    os.write(1, (json.dumps([os.getpid(), *told()]) + chr(10)).encode())
for _ in range(2):
    if os.fork() == 0:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        work()
        sys.exit(0)
    os.wait()
work()
""",
    )
    assert (watched.returncode, watched.stderr) == (0, b""), watched.stderr.decode()
    said = [json.loads(line) for line in watched.stdout.splitlines()]
    assert len(said) == 5
    assert len(watched.regions) == 3
    for pid, tid, *end in said:
        (region,) = watched.of_pid(pid)
        assert region.header["forked"] == (pid != watched.process.pid)
        assert region.header["state"] == ENDED
        assert_sampled(region.thread(tid), *end)


def is_ignored(number):
    """In this process, and so in what it starts."""
    (mask,) = re.findall(r"^SigIgn:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(mask, 16) >> (number - 1) & 1 != 0


@pytest.mark.parametrize(
    "end, returncode, state",
    [
        ("os._exit(7)", 7, ENDED),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, SAMPLING),
        ("os.abort()", -signal.SIGABRT, SAMPLING),
        ("sys.exit(3)", 3, ENDED),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", 0, ENDED),
        (f"os.kill(os.getpid(), {AGENT_SIGNAL})", -AGENT_SIGNAL, SAMPLING),
    ],
)
def test_ends(python, end, returncode, state):
    """Whatever ends a program, it ends as it does alone, and what was sampled is there."""
    if returncode == -AGENT_SIGNAL and is_ignored(AGENT_SIGNAL):
        returncode, state = 0, ENDED
    watched = Watched(python, COMMON + f"burn_until_seen(0.2)\nprint(json.dumps(told()), flush=True)\n{end}\n")
    assert watched.returncode == returncode, watched.stderr.decode()
    assert watched.stderr == b""
    assert watched.region.header["state"] == state
    tid, *end = json.loads(watched.stdout)
    assert_sampled(watched.region.thread(tid), *end)


def test_last_words_before_an_exec(python):
    """Whatever follows, and whatever could not: all that the thread has used until then is told."""
    code = """
burn(0.05)
try:
    os.execv("/nonexistent", ["x"])
except OSError:
    burn(0.05)
print(json.dumps(told()), flush=True)
os.execve("/bin/true", ["true"], {})
"""
    watched = Watched(python, COMMON + code)
    tid, cpu_ns, _ = watched.json()
    assert watched.region.header["state"] == SAMPLING
    assert cpu_ns <= watched.region.thread(tid).samples[-1].cpu_ns < cpu_ns + ENDING_NS


def without_agents_signal(state):
    """The state of agent_state.py, less the one thing that may differ: a handler for a signal that libc hides. Alone, it may be
    ignored: glibc's posix_spawn leaves the signals that are libc's own so (sysdeps/unix/sysv/linux/spawni.c)."""

    def clear(match):
        return f"{match[1]}{int(match[2], 16) & ~(1 << (AGENT_SIGNAL - 1)):016x}"

    # As a value of its own, and in what a child printed of its /proc/self/status.
    text = re.sub(r"""(Sig(?:Cgt|Ign)(?:": "|:\\t))([0-9a-f]{16})""", clear, json.dumps(state))
    return json.loads(text)


def test_the_program_sees_what_it_sees_alone(python):
    """Signals, masks, pending signals, descriptors, threads; its own and those that its children inherit."""
    script = str(TARGETS / "agent_state.py")
    environment = {**os.environ, **QUIET}
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "check": True}
    alone = subprocess.run([python.path, script], env=environment, **options)
    watched = Watched(command=[python.path, script])
    assert without_agents_signal(watched.json()) == without_agents_signal(json.loads(alone.stdout))
    assert len(watched.regions) >= 1


def test_waiting_calls_are_not_cut_short(any_python, helper):
    watched = Watched(any_python, with_helper(helper) + "print(json.dumps(helper.count_interruptions(200)))")
    assert watched.json() == 0
    assert len(watched.region.main.samples) > 50


def test_long_system_calls_are_whole(any_python):
    size = 256 << 20
    watched = Watched(
        any_python,
        COMMON
        + f"""
import mmap
memory = mmap.mmap(-1, {size})
zero = os.open('/dev/zero', os.O_RDONLY)
counts = [os.readv(zero, [memory]), len(os.getrandom(8 << 20))]
burn_until_seen(0)
print(json.dumps([counts, told()]), flush=True)
# Giving the memory back would take its time, too.
os._exit(0)
""",
    )
    counts, (tid, *end) = watched.json()
    assert counts == [size, 8 << 20]
    assert_sampled(watched.region.thread(tid), *end)


def test_the_programs_own_timers(python):
    """SIGPROF, SIGALRM, wake-up descriptors and faulthandler go on working."""
    watched = Watched(
        python,
        COMMON
        + """
import faulthandler, socket
counts = {signal.SIGPROF: 0, signal.SIGALRM: 0, signal.SIGRTMAX: 0, signal.SIGRTMIN: 0}
def count(number, frame):
    counts[number] += 1
for number in counts:
    signal.signal(number, count)
ours, theirs = socket.socketpair()
theirs.setblocking(False)
signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
burn(0.1)
while min(counts[signal.SIGPROF], counts[signal.SIGALRM]) < 5:
    burn(0.01)
signal.setitimer(signal.ITIMER_PROF, 0)
signal.setitimer(signal.ITIMER_REAL, 0)
os.kill(os.getpid(), signal.SIGRTMAX)
os.kill(os.getpid(), signal.SIGRTMIN)
faulthandler.enable()
with open(os.devnull, 'w') as null:
    faulthandler.dump_traceback_later(0.01, file=null)
    burn(0.05)
    faulthandler.cancel_dump_traceback_later()
woken = ours.recv(4096)
burn_until_seen(0)
print(json.dumps({"counts": {int(k): v for k, v in counts.items()}, "woken": sorted(set(woken)), "end": told()}))
""",
    )
    said = watched.json()
    counts = {int(number): count for number, count in said["counts"].items()}
    assert counts.pop(signal.SIGRTMAX) == counts.pop(signal.SIGRTMIN) == 1
    assert set(said["woken"]) >= {signal.SIGPROF, signal.SIGALRM}
    assert all(5 <= count for count in counts.values())
    tid, *end = said["end"]
    assert_sampled(watched.region.thread(tid), *end)


@pytest.mark.parametrize("command", [["ls", "/"], ["sh", "-c", "echo $0; cat /proc/self/timers"], ["env", "-i", "true"]])
def test_what_is_no_python_is_left_alone(command):
    alone = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    watched = Watched(command=command)
    assert (watched.returncode, watched.stdout, watched.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert watched.regions == {}


def test_no_folder_no_agent(any_python):
    for folder in ("", "/nonexistent", "relative"):
        watched = Watched(any_python, "import threading; print(1)", env={"STROBE_AGENT_FOLDER": folder})
        assert (watched.stdout, watched.stderr, watched.returncode) == (b"1\n", b"", 0)
        assert watched.regions == {}


def test_limit_on_file_sizes(any_python):
    """Extending a file beyond the limit would be a deadly signal."""
    command = ["sh", "-c", 'ulimit -f 100; exec "$0" -c "print(1)"', any_python.path]
    watched = Watched(command=command)
    assert (watched.stdout, watched.stderr, watched.returncode) == (b"1\n", b"", 0)
    assert watched.region.header["state"] == OFF
    assert "ulimit -f" in watched.region.header["reason"]


@pytest.mark.parametrize("size_kb", [0, 4, 300, 520, 680, 960])
def test_no_memory_to_share(any_python, size_kb):
    """A full file system is no deadly signal, but a reason or a thread that is not sampled; half of it is the program's."""
    code = COMMON + """
def work():
    burn(0.05)
for _ in range(4):
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
folder = os.environ['STROBE_AGENT_FOLDER']
print(json.dumps({name: open(os.path.join(folder, name), 'rb').read(4096).hex() for name in os.listdir(folder)}))
"""
    size = f"size={size_kb}k" if size_kb else "size=4k,nr_inodes=1"
    command = ["unshare", *(["-m"] if os.geteuid() == 0 else ["-rm"]), "sh", "-ec"]
    if subprocess.run([*command, "mount -t tmpfs none /mnt"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("no file system may be mounted here")
    script = f'mount -t tmpfs -o {size} none "$STROBE_AGENT_FOLDER"; exec "$0" -c "$1"'
    watched = Watched(command=[*command, script, any_python.path, code])
    headers = {name: header_of(bytes.fromhex(text)) for name, text in watched.json().items()}
    if size_kb == 0:
        assert headers == {}
        return
    (header,) = headers.values()
    own_bytes = (size_kb << 10) // 2
    if own_bytes < RINGS_OFFSET + RING_BYTES:
        assert header["state"] == OFF
        assert "/dev/shm" in header["reason"]
    else:
        assert header["state"] == SAMPLING
        # There is room for the main thread's ring and for as many more as fit; nobody gives one back here.
        assert header["no_slot"] == 12 - (own_bytes - RINGS_OFFSET) // RING_BYTES + 1


MALLOCS = [path for name in ("jemalloc", "tcmalloc_minimal") for path in Path("/usr/lib").glob(f"*/lib{name}.so.[0-9]")]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("malloc", MALLOCS, ids=lambda path: path.name)
def test_beside_another_malloc(any_python, malloc, first):
    libraries = [str(malloc), str(AGENT)] if first else [str(AGENT), str(malloc)]
    watched = Watched(
        any_python,
        COMMON
        + """
def work():
    burn_until_seen(0.1)
    print(json.dumps(told()), flush=True)
thread = threading.Thread(target=work)
thread.start()
thread.join()
if os.fork() == 0:
    work()
    sys.exit()
os.wait()
with open('/proc/self/maps') as file:
    assert any(sys.argv[1] in line for line in file)
""",
        str(malloc.resolve()),
        env={"LD_PRELOAD": " ".join(libraries)},
    )
    assert (watched.returncode, watched.stderr) == (0, b""), watched.stderr.decode()
    said = [json.loads(line) for line in watched.stdout.splitlines()]
    threads = {thread.tid: thread for region in watched.regions.values() for thread in region.threads}
    for tid, *end in said:
        assert_sampled(threads[tid], *end)


def test_threads_without_a_descriptor_left(any_python, tmp_path):
    """A thread is sampled though the program can open nothing: no descriptor, no root, no user to do it with."""
    watched = Watched(
        any_python,
        COMMON
        + """
import resource
# Open already, it stays so.
region = open_region()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
def work():
    burn_until_seen(0.1, region)
    print(json.dumps(told()))
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    )
    tid, *end = watched.json()
    assert_sampled(watched.region.thread(tid), *end)


def test_paused(any_python):
    watched = Watched(
        any_python,
        COMMON
        + """
import ctypes
agent = ctypes.CDLL(sys.argv[1])
assert not agent.strobe_agent_is_sampling()
def told_twice(change):
    before = told()[1:]
    change()
    return before, told()[1:]
burn(0.2)
started = told_twice(agent.strobe_agent_start)
assert agent.strobe_agent_is_sampling()
burn_until_seen(0.2)
seen = told()[1:]
stopped = told_twice(agent.strobe_agent_stop)
burn(0.2)
again = told_twice(agent.strobe_agent_start)
burn_until_seen(0)
seen_again = told()[1:]
burn_until_seen(0.2)
print(json.dumps([started, seen, stopped, again, seen_again, told()[1:]]))
""",
        str(AGENT),
        env={"STROBE_AGENT_PAUSED": "1"},
    )
    started, seen, stopped, again, seen_again, end = watched.json()
    thread = watched.region.main
    assert thread.lost == 0
    start_cpu_ns = thread.fields["start_cpu_ns"]

    def sampled_until(moment):
        return [sample for sample in thread.samples if sample.time_ns <= moment[1]]

    def used_ns(begin, end):
        """The least and the most CPU time between two changes: each was made somewhere between two looks at the clock."""
        return end[0][0] - begin[1][0], end[1][0] - begin[0][0]

    # Nothing is seen while sampling is paused.
    assert not sampled_until(started[0])
    assert len(sampled_until(stopped[1])) == len(sampled_until(again[0]))
    # The account of the thread that makes a change is exact, whenever the clock struck: what its first sample after a pause
    # stands for is what it has used since the pause, and since the last sample before it, and nothing of the pause itself.
    first, *_ = sampled_until(seen)
    assert 0 <= first.cpu_ns - start_cpu_ns <= seen[0] - started[0][0]
    before = sampled_until(stopped[1])
    first = sampled_until(seen_again)[len(before)]
    least_ns, most_ns = used_ns(started, stopped)
    assert least_ns <= first.cpu_ns - start_cpu_ns <= most_ns + seen_again[0] - again[0][0]
    # And what is not paused is there.
    on_ns = used_ns(started, (end, end))[1] - used_ns(stopped, again)[0]
    assert on_ns - UNSAMPLED_NS < sampled_until(end)[-1].cpu_ns - start_cpu_ns <= on_ns


def test_paused_from_outside(any_python, helper):
    watched = Watched(
        any_python,
        with_helper(helper)
        + """
for line in sys.stdin:
    burn(0.2)
    # A thread learns of a change when its clock strikes, and counts from one strike to another: little is used from the last
    # one to the change, and to the next one after it.
    helper.burn_until_tick()
    seen = told()[1:]
    burn(0.2)
    helper.burn_until_tick()
    print(json.dumps([seen, told()[1:]]), flush=True)
""",
        stdin=subprocess.PIPE,
        wait=False,
    )
    times = []
    for control in (SAMPLE, PAUSE, PAUSE, SAMPLE):
        watched.read()
        for region in watched.regions.values():
            region.set_control(control)
        watched.process.stdin.write(b"\n")
        watched.process.stdin.flush()
        times.append(json.loads(watched.process.stdout.readline()))
    watched.end()
    assert (watched.returncode, watched.stderr) == (0, b"")
    thread = watched.region.main
    assert thread.lost == 0
    (_, sampled), _, (_, paused), (seen, end) = times
    paused_ns = paused[0] - sampled[0]
    before = [sample for sample in thread.samples if sample.time_ns <= sampled[1]]
    assert before == [sample for sample in thread.samples if sample.time_ns <= paused[1]]
    assert sampled[0] - UNSAMPLED_NS < before[-1].cpu_ns <= sampled[0]
    # The first sample after the pause is charged with nothing of it, and the last with nothing less than all the rest.
    after = [sample for sample in thread.samples if paused[1] < sample.time_ns <= end[1]]
    assert after[0].time_ns <= seen[1]
    assert after[0].cpu_ns <= seen[0] - paused_ns + UNSAMPLED_NS
    assert abs(after[-1].cpu_ns - (end[0] - paused_ns)) < UNSAMPLED_NS


def test_nobody_reads(any_python):
    """The rings fill, what does not fit is counted, and the program runs as before."""
    watched = Watched(any_python, COMMON + "burn(4)\nprint(json.dumps(told()))", read=False)
    watched.json()
    thread = watched.region.main
    assert thread.lost > 0
    assert thread.samples[-1].cpu_ns < 4 * NS_PER_S


def test_many_threads_at_once(any_python):
    """More than there are slots: the others run all the same, and are counted."""
    watched = Watched(
        any_python,
        COMMON
        + """
threading.stack_size(64 << 10)
count = 1100
barrier = threading.Barrier(count + 1)
threads = [threading.Thread(target=barrier.wait) for _ in range(count)]
for thread in threads: thread.start()
barrier.wait()
for thread in threads: thread.join()
print(json.dumps(count))
""",
    )
    count = watched.json()
    assert len(watched.region.threads) + watched.region.header["no_slot"] == count + 1
    assert watched.region.header["no_slot"] >= count + 1 - 1024


def test_live_slots_are_seen_while_it_runs(any_python):
    watched = Watched(
        any_python, COMMON + "print(1, flush=True)\nsys.stdin.read()", stdin=subprocess.PIPE, wait=False
    )
    watched.process.stdout.readline()
    watched.read()
    assert watched.region.states().count(SLOT_LIVE) == 1
    assert watched.region.header["state"] == SAMPLING
    watched.end()
    assert watched.returncode == 0
