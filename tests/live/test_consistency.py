"""Looks at threads that run: the picture must be one that was, and the threads must run on."""

import os
import signal
import struct
import subprocess
import time
from pathlib import Path

import harness
import pytest
from harness import Target, dump, strobe

THREADS = 8
POSSIBLE = [["c", "b", "a"], ["b", "a"], ["a"], []]


@pytest.fixture
def counter(tmp_path):
    path = tmp_path / "counter"
    path.write_bytes(bytes(8))
    return path


def count_in(counter):
    return struct.unpack("<Q", counter.read_bytes())[0]


def await_progress(counter):
    """The program's own word that it runs: its counter goes on. Waits for it."""
    before = count_in(counter)
    deadline_s = time.monotonic() + harness.TIMEOUT_S
    while count_in(counter) < before + 2:
        assert time.monotonic() < deadline_s, "the target does not run"
        os.sched_yield()


def is_possible(thread):
    names = [frame["function"] for frame in thread["frames"] if frame.get("function", "") in alternating]
    return [name[0] for name in names] in POSSIBLE and len({name[1] for name in names}) <= 1


alternating = {letter + number for letter in "abc" for number in "12"}


def looks_for(python):
    """How often to look. Without a GIL all threads compete with strobe, which makes each look a slow one."""
    return 15 if python.free_threaded else 200


def look_often(target, count, *options):
    """(all threads' looks, those said to be consistent but impossible)"""
    looks = [thread for _ in range(count) for thread in dump(target, *options)["threads"]]
    wrong = [thread for thread in looks if thread["consistent"] and not is_possible(thread)]
    return looks, wrong


def test_a_stopped_process_shows_one_instant(python, counter):
    count = looks_for(python)
    with Target(python, "alternate.py", counter, THREADS) as target:
        looks, wrong = look_often(target, count, "--blocking")
        await_progress(counter)
    assert len(looks) == count * THREADS
    assert wrong == []
    # Stopped, each stack can be read as it is, but for one that stands where a frame is being made: that may be said.
    assert [thread["frames"] for thread in looks if any("error" in frame for frame in thread["frames"])] == []
    assert len([thread for thread in looks if thread["consistent"]]) > 0.97 * len(looks)
    if not python.free_threaded:
        assert len([thread for thread in looks if thread["gil"] == "held"]) <= count
    # Not a picture of threads that do nothing.
    assert len({tuple(frame["function"] for frame in thread["frames"]) for thread in looks}) > 4


def test_a_running_process_is_hardly_ever_seen_wrong(python, counter, record_property):
    count = looks_for(python)
    with Target(python, "alternate.py", counter, THREADS) as target:
        looks, wrong = look_often(target, count)
        await_progress(counter)
    assert len(looks) == count * THREADS
    consistent = [thread for thread in looks if thread["consistent"]]
    record_property("consistent", f"{len(consistent)} of {len(looks)}")
    record_property("impossible", f"{len(wrong)} of {len(consistent)}")
    assert len(consistent) > 0.9 * len(looks)
    # With a GIL one thread runs at a time: one stack of each look can be wrong. On a thread that does nothing but call
    # and return, 3 in 100 were at worst (3.11), none on 3.14 and 3.15. 10 in 100 of 200 looks is then less likely than
    # 10^-6; the rates are in the report of the test.
    assert len(wrong) <= 0.1 * count * (THREADS if python.free_threaded else 1)


def test_threads_run_on_when_strobe_is_killed(any_python, counter):
    """At instants all over its run, some of them while it holds the threads."""
    with Target(any_python, "alternate.py", counter, 3) as target:
        for number in range(40):
            strobe_process = subprocess.Popen(
                [harness.STROBE, "dump", "--blocking", "--locals", str(target.pid)], stdout=subprocess.DEVNULL
            )
            # Until it has come so far: strobe's own work is the clock.
            for _ in range(number * 20):
                os.sched_yield()
            strobe_process.kill()
            strobe_process.wait()
            await_progress(counter)
        assert "t" not in states(target.pid)
        assert dump(target, "--blocking")["threads"]


def states(pid):
    """The kernel's letter for the state of each thread."""
    return {stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")}


def await_states(pid, wanted):
    deadline_s = time.monotonic() + harness.TIMEOUT_S
    while (found := states(pid)) != wanted:
        assert time.monotonic() < deadline_s, found
        os.sched_yield()


def test_a_process_stopped_by_a_signal_stays_stopped(python):
    with Target(python, "threads.py") as target:
        told = target.said["threads"]
        os.kill(target.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOWAIT)
        for options in ([], ["--blocking"], ["--blocking"]):
            harness.assert_same_threads(python, told, dump(target, *options))
            # For an instant each is let go, without leaving the kernel.
            await_states(target.pid, {"T"})
        # What the parent was told of is as it was: one stop, not yet waited for.
        assert os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOHANG).si_status == signal.SIGSTOP
        assert os.waitid(os.P_PID, target.pid, os.WSTOPPED | os.WNOHANG) is None
        os.kill(target.pid, signal.SIGCONT)
        assert os.waitid(os.P_PID, target.pid, os.WCONTINUED).si_status == signal.SIGCONT
        harness.assert_same_threads(python, told, dump(target))


def test_no_signal_and_no_timer_is_lost(any_python):
    """Signals sent by us while strobe stops the target again and again; each is counted by the target. Real-time signals
    queue, so that none is merged with another. Nor is its sleep cut short: it sleeps to a time, not for a span."""
    with Target(any_python, "signals.py") as target:
        sent = 0
        for _ in range(40):
            looking = subprocess.Popen(
                [harness.STROBE, "dump", "--blocking", str(target.pid)], stdout=subprocess.DEVNULL
            )
            while looking.poll() is None:
                os.kill(target.pid, signal.SIGRTMIN)
                sent += 1
                os.sched_yield()
            assert looking.returncode == harness.OK
        target.send("count")
        told = target.read()
    assert told["signals"] == sent
    assert told["timers"] > 0 and told["interrupted"] == 0


def test_a_traced_process_is_refused_when_it_is_to_be_stopped(any_python):
    with Target(any_python, "ready.py") as target:
        with subprocess.Popen(
            ["strace", "-f", "-o", "/dev/null", "-p", str(target.pid)], stderr=subprocess.PIPE, text=True
        ) as tracer:
            if "attached" not in (line := tracer.stderr.readline()):
                pytest.skip(f"strace cannot attach: {line}")
            refused = strobe("dump", "--blocking", target.pid)
            plain = strobe("dump", "--json", target.pid)
            tracer.send_signal(signal.SIGINT)
        harness.assert_refuses(refused, harness.NO_PERMISSION)
        assert str(tracer.pid) in refused.stderr
        assert plain.json()["threads"][0]["frames"]
        assert strobe("dump", "--blocking", target.pid).returncode == harness.OK


def test_waiting_for_children_is_untouched(any_python):
    """A target that only waits for its child, stopped again and again: wait() returns once, with the child's status."""
    with Target(any_python, "waiting.py") as target:
        for _ in range(30):
            assert dump(target, "--blocking")["threads"]
            assert strobe("dump", "--json", "--blocking", target.said["child"]).json()["threads"]
        os.kill(target.said["child"], signal.SIGTERM)
        assert target.read() == {"waited": target.said["child"], "signal": signal.SIGTERM, "calls": 1}
