"""`strobe run`: which function, and which thread, held against the clocks of the program itself."""

import json
import subprocess

import pytest
from harness import TARGETS
from test_run_agent import POINTS, TICK_S, run  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def helper(tmp_path_factory):
    path = tmp_path_factory.mktemp("helper") / "agent_threads.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", path, TARGETS / "agent_threads.c"]
    subprocess.run(command, check=True)
    return path


def test_functions_that_do_the_same(python, run):  # noqa: F811
    """A call costs what it costs, and being looked at costs it nothing: tracing profilers are off by tens here."""
    seconds = 0.8
    ran = run("--", python.path, TARGETS / "alike.py", seconds)
    truth = json.loads(ran.result.stdout)
    for percent in (10, 50, 90):
        names = [f"calling_{percent}", f"inlined_{percent}"]
        told = [ran.functions(name, "total_cpu_s") for name in names]
        true = [truth[name] for name in names]
        assert told[0] / sum(told) == pytest.approx(true[0] / sum(true), abs=ran.looks.bound(POINTS * seconds) / seconds), percent


def test_who_of_many_threads_works(python, run, helper):  # noqa: F811
    ran = run("--", python.path, TARGETS / "many_threads.py", helper)
    truth = json.loads(ran.result.stdout)
    waiting = ("waits_for_bytes", "waits_for_items", "waits_for_event", "waits_in_select")
    for name in waiting:
        # Each of its threads lives for less than a tick of its own CPU time.
        assert ran.functions(name, "total_cpu_s") <= 3 * TICK_S, name
        assert ran.functions(name, "total_wait_s") > 0.3, name
    assert ran.functions("one_of_eight", "total_cpu_s") == pytest.approx(truth["one_of_eight"], abs=ran.looks.edge_s() + TICK_S)
    threads = {thread["name"]: thread["cpu_s"] for thread in ran.report["threads"]}
    names = [f"unequal_{number}" for number in range(8)]
    # Names are read from outside: on a busy machine perhaps too late for a thread that lives for a moment.
    assert len(threads.keys() & set(names)) >= 6
    nameless = [thread["cpu_s"] for thread in ran.report["threads"] if thread["name"] not in names]
    for name in names:
        found = [threads[name]] if name in threads else nameless
        assert any(cpu_s == pytest.approx(truth[name], abs=TICK_S) for cpu_s in found), (name, found)
    # What C's own threads use is theirs: the line that waits for them has next to nothing of it.
    assert truth["native"] > 0.35
    assert ran.functions("waits_for_c", "total_cpu_s") <= truth["waits_for_c"] + ran.looks.bound(3 * TICK_S, edges=2)
    others = [t["cpu_s"] for t in ran.report["threads"] if t["cpu_s"] == pytest.approx(0.05, abs=0.02)]
    assert len(others) >= 8
