"""strobe's stacks against those the interpreter itself gives: frame for frame, column for column."""

import re

import pytest
from harness import Target, assert_same_threads, dump, strobe


def test_every_kind_of_function(python):
    with Target(python, "functions.py") as target:
        assert len(target.said["threads"][0]["frames"]) > 30
        assert_same_threads(python, target.said["threads"], dump(target))


def test_names_of_every_string_kind(python):
    with Target(python, "names.py") as target:
        assert_same_threads(python, target.said["threads"], dump(target))


def test_threads_in_different_places(python):
    with Target(python, "threads.py") as target:
        assert len(target.said["threads"]) == 7
        assert_same_threads(python, target.said["threads"], dump(target))


def test_recursion_to_ten_thousand_frames(python):
    with Target(python, "deep.py", 10_000) as target:
        assert len(target.said["threads"][0]["frames"]) > 10_000
        assert_same_threads(python, target.said["threads"], dump(target))


@pytest.mark.parametrize("depth", [1, 50, 700])
def test_stopping_the_threads_changes_nothing(python, depth):
    with Target(python, "deep.py", depth) as target:
        assert_same_threads(python, target.said["threads"], dump(target, "--blocking"))
        # And they run on: the next dump finds the same.
        assert_same_threads(python, target.said["threads"], dump(target))


def test_what_the_process_is(python):
    with Target(python, "functions.py") as target:
        dumped = dump(target)
        assert dumped["pid"] == target.pid
        assert dumped["python"] == python.version_text
        assert dumped["free_threaded"] == python.free_threaded
        assert dumped["command"] == target.command


def test_a_blocked_thread_is_idle_and_without_the_gil(python):
    with Target(python, "threads.py") as target:
        # The last of its system calls is the one that blocks; until it is there, the kernel calls it running.
        for thread in target.said["threads"]:
            target.await_sleep(thread["native_id"])
        for thread in dump(target)["threads"]:
            assert (thread["state"], thread["gil"]) == ("idle", "none"), thread["name"]


def looks_at(target, count):
    """So many dumps of a busy.py, each as {thread name: thread}, begun when the kernel said that one thread is busy and
    the other sleeps."""
    target.await_cpu_time(target.said["native_id"], ticks=10)
    for _ in range(count):
        target.await_sleep(target.said["waiting"])
        yield {thread["name"]: thread for thread in dump(target)["threads"]}


def test_a_busy_thread_runs_and_holds_the_gil(python):
    with Target(python, "busy.py") as target:
        looks = list(looks_at(target, 20))
    assert {frozenset(look) for look in looks} == {frozenset({"MainThread", "blocked", "waiting"})}
    assert {look["MainThread"]["state"] for look in looks} == {"running"}
    seen = {name: [look[name].get("gil") for look in looks] for name in looks[0]}
    if python.free_threaded:
        assert {gil for gils in seen.values() for gil in gils} <= {"none", None}
        return
    assert set(seen["MainThread"]) == {"held"}
    assert set(seen["blocked"]) == {"none"}
    if python.at_least(3, 15):
        assert set(seen["waiting"]) == {"waiting"}
        return
    # A thread that wants the GIL sleeps for it in spans of 5 ms (Python/ceval_gil.h, 3.8) and is runnable for an instant
    # between two of them, a long one when the machine is busy. Up to 3.14 nothing but the sleeping tells that it wants it.
    # Its state and what it sleeps on are two looks of strobe's, so now and then they do not fit: 1 in 300 was seen, more
    # than 3 of 20 is then less likely than 10^-6.
    asleep = [look["waiting"]["gil"] for look in looks if look["waiting"]["state"] == "idle"]
    assert asleep
    assert len(asleep) - asleep.count("waiting") <= 3, asleep


def test_a_headline_says_what_a_thread_does(python):
    with Target(python, "busy.py") as target:
        list(looks_at(target, 1))
        shown = strobe("dump", target.pid).stdout
    gil = "" if python.free_threaded else ", holds the GIL"
    assert f'\nThread {target.said["native_id"]} "MainThread" (running{gil})\n' in shown
    # Up to 3.14 nothing but its sleep tells that it waits: see above.
    waits = r"\((idle|running)\)" if python.free_threaded else r"\((idle|running)(, waits for the GIL)?\)"
    if python.at_least(3, 15):
        waits = r"\((idle|running), waits for the GIL\)"
    assert re.search(rf'\nThread {target.said["waiting"]} "waiting" {waits}\n', shown), shown


def test_code_that_c_calls(python):
    with Target(python, "callbacks.py") as target:
        assert len(target.said["threads"]) == 7
        assert len(target.said["threads"][-1]["frames"]) > 60
        assert_same_threads(python, target.said["threads"], dump(target))


def test_generators_and_coroutines(python):
    with Target(python, "generators.py") as target:
        assert len(target.said["threads"][0]["frames"]) > 150
        assert_same_threads(python, target.said["threads"], dump(target))
        assert_same_threads(python, target.said["threads"], dump(target, "--blocking"))
