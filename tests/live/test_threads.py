"""Threads: who they are, in children and in other interpreters, and whether they collect garbage."""

import re
import subprocess

import harness
import pytest
from embedding import environment_of, library_of
from harness import Target, assert_same_threads, dump, strobe


def test_threads_made_in_every_way(python):
    with Target(python, "identities.py") as target:
        assert len(target.said["threads"]) == 11
        assert_same_threads(python, target.said["threads"], dump(target))


def test_threads_that_never_run_python(python):
    """They are there, by the kernel's account; what is nobody's Python has no Python's numbers."""
    with Target(python, "native_threads.py") as target:
        dumped = dump(target)
        shown = strobe("dump", target.pid).stdout
    native = [thread for thread in dumped["threads"] if thread["thread_id"] is None]
    assert [thread["native_id"] for thread in native] == target.said["native"]
    assert [thread["name"] for thread in native] == ["native one", "\\xff\x1b[31m"]
    assert all((thread["frames"], thread["interpreter"]) == ([], None) for thread in native)
    others = [thread for thread in dumped["threads"] if thread not in native]
    assert_same_threads(python, target.said["threads"], {"threads": others})
    first, second = target.said["native"]
    assert f'\nThreads that run no Python: {first} "native one", {second} "\\xff\\x1b[31m"\n' in shown


def test_a_thread_without_frames(python, tmp_path):
    """It belongs to Python, and is in none of its functions."""
    if not python.shared:
        pytest.skip("no libpython to link with")
    program, library = tmp_path / "idle", library_of(python)
    subprocess.run(
        ["cc", "-o", program, harness.TARGETS / "embed_idle.c", library, f"-Wl,-rpath,{library.parent}"], check=True
    )
    with Target(str(program), "idle_embedded.py", extra_env=environment_of(python)) as target:
        target.await_sleep(target.pid)
        assert_same_threads(python, target.said["threads"], dump(target))
        assert f'\nThread {target.pid} "MainThread" (idle)\n    (no Python frames)\n' in strobe("dump", target.pid).stdout


@pytest.mark.parametrize("thread", ["main", "another"])
@pytest.mark.parametrize(
    "way",
    [
        "fork",
        "fork_twice",
        "fork_with_thread",
        "multiprocessing_fork",
        "multiprocessing_spawn",
        "multiprocessing_forkserver",
    ],
)
def test_child_process(python, way, thread):
    with Target(python, "forking.py", way, thread) as target:
        child = target.said
        assert child["pid"] != target.pid
        dumped = strobe("dump", "--json", child["pid"]).json()
        assert dumped["pid"] == child["pid"]
        assert_same_threads(python, child["threads"], dumped)


@pytest.mark.parametrize("way", ["finaliser", "weak_callback", "start", "none"])
def test_a_garbage_collection(python, way):
    """The target says where it collects by what it is: the stop is in what a collection calls."""
    with Target(python, "collecting.py", way) as target:
        # Once it computes, it does not let the GIL go.
        target.await_cpu_time(target.said["threads"][0]["native_id"], ticks=5)
        dumped = dump(target)
        headlines = re.findall("^Thread .*", strobe("dump", target.pid).stdout, re.MULTILINE)
        told = target.said["threads"]
    assert_same_threads(python, told, dumped)
    assert ["collecting garbage" in line for line in headlines] == [thread["collecting"] for thread in dumped["threads"]]
    assert [interpreter["collecting"] for interpreter in dumped["interpreters"]] == [way != "none"]
    thread = dumped["threads"][0]
    collecting = [frame["function"] for frame in thread["frames"] if frame.get("collecting")]
    if python.at_least(3, 15):
        assert thread["collecting"] == (way != "none")
        assert collecting == (["triggers"] if way != "none" else [])
    else:
        # The thread is known by the GIL that it holds; where there is none, it is not known.
        assert thread["collecting"] == (way != "none" and not python.free_threaded)
        assert collecting == []


@pytest.mark.parametrize("what", ["threads", "interpreters"])
def test_what_comes_and_goes_takes_nothing_along(python, what):
    """Before the list was read to its end first, one dump in ten had none of the threads that stay."""
    if what == "interpreters" and not python.at_least(3, 9):
        pytest.skip("its interpreters do not come and go: they share what one that ends takes along")
    with Target(python, "coming_and_going.py", what) as target:
        told = {thread["thread_id"] for thread in target.said["threads"]}
        for _ in range(25):
            dumped = dump(target)
            # A list that changed at every attempt says so; that is not what a list of some dozen threads does.
            assert dumped["threads_complete"]
            assert told <= {thread["thread_id"] for thread in dumped["threads"] if thread["frames"]}


def subinterpreter_modules(python):
    if python.at_least(3, 14):
        return ["_interpreters", "concurrent.interpreters"]
    return ["_interpreters"] if python.at_least(3, 13) else ["_xxsubinterpreters"]


@pytest.mark.parametrize("blocking", [[], ["--blocking"]], ids=["", "blocking"])
def test_other_interpreters(python, blocking):
    for module in subinterpreter_modules(python):
        with Target(python, "subinterpreters.py", module, 3) as target:
            dumped = dump(target, *blocking)
            told = {"0": target.said["threads"], **target.said["interpreters"]}
        assert {str(interpreter["id"]) for interpreter in dumped["interpreters"]} == set(told)
        for number, threads in told.items():
            seen = [thread for thread in dumped["threads"] if str(thread["interpreter"]) == number]
            assert_same_threads(python, threads, {"threads": seen})
        assert len(dumped["threads"]) == sum(map(len, told.values()))
