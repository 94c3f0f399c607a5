"""The tasks of asyncio against what asyncio itself says of them."""

import harness
import interpreters
import pytest
from harness import Target, assert_same_frames, dump, in_utf8, strobe

FIRST = (3, 14)
SCENARIOS = (
    "gather",
    "task_group",
    "shield",
    "many_awaiters",
    "ring",
    "generators",
    "not_begun",
    "running",
    "eager",
    "thousand",
    "threads",
    "orphans",
    "no_tasks",
)


@pytest.fixture
def new_python(python):
    if not python.at_least(*FIRST):
        pytest.skip("asyncio describes itself from 3.14 on")
    return python


def assert_same_tasks(python, told, dumped):
    """The same tasks, each with the same name, state, frames and awaiters."""
    seen = {task["task_id"]: task for task in dumped["tasks"]}
    assert len(seen) == len(dumped["tasks"])
    assert set(seen) == {task["task_id"] for task in told}
    assert dumped["tasks_complete"]
    for task in told:
        found = seen[task["task_id"]]
        assert found["name"] == in_utf8(task["name"])
        for key in ("state", "thread_id"):
            assert (key, found[key]) == (key, task[key]), task
        assert_same_frames(python, task["frames"], found["frames"])
        assert sorted(found["awaited_by"]) == task["awaited_by"]
        assert found["consistent"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tasks(new_python, scenario):
    with Target(new_python, "tasks.py", scenario) as target:
        told = target.said["tasks"]
        assert (len(told) > 1) == (scenario != "no_tasks")
        for options in ([], ["--blocking"]):
            assert_same_tasks(new_python, told, dump(target, "--async", *options))


def test_tasks_are_shown_only_when_asked_for(new_python):
    with Target(new_python, "tasks.py", "gather") as target:
        assert "tasks" not in dump(target)


def test_text_shows_a_tree(new_python):
    with Target(new_python, "tasks.py", "task_group") as target:
        result = strobe("dump", "--async", target.pid)
        told = {task["name"]: task for task in target.said["tasks"]}
    assert result.returncode == harness.OK and result.stderr == ""
    tree = result.stdout.partition("Tasks of thread")[2]
    assert tree.startswith(f' {target.pid} "MainThread"')
    indents = {}
    for line in tree.splitlines():
        name = line.strip().removeprefix('Task "').partition('"')[0]
        if line.strip().startswith("Task "):
            assert name not in indents
            indents[name] = len(line) - len(line.lstrip())
            assert f"{told[name]['task_id']:#x}" in line and f"({told[name]['state']})" in line
    assert set(indents) == set(told)
    roots = [name for name, task in told.items() if not task["awaited_by"]]
    assert [name for name, indent in indents.items() if indent == 4] == roots == ["Task-1"]
    names = {task["task_id"]: name for name, task in told.items()}
    for name, task in told.items():
        for awaiter in task["awaited_by"]:
            assert indents[name] == indents[names[awaiter]] + 4


def test_text_shows_a_task_once_whoever_awaits_it(new_python):
    for scenario, again in (("many_awaiters", 19), ("ring", 1)):
        with Target(new_python, "tasks.py", scenario) as target:
            text = strobe("dump", "--async", target.pid).stdout
        for task in target.said["tasks"]:
            heads = [line for line in text.splitlines() if f"{task['task_id']:#x}" in line]
            assert len([line for line in heads if "(shown above)" not in line]) == 1
        assert text.count("(shown above)") == again


def test_locals_of_suspended_coroutines(new_python):
    with Target(new_python, "tasks.py", "task_group") as target:
        tasks = {task["name"]: task for task in dump(target, "--async", "--locals")["tasks"]}
    frame = tasks["inner"]["frames"][-1]
    assert frame["function"] == "nested"
    assert {"name": "depth", "type": "int", "value": "1", "argument": True} in frame["locals"]


def test_a_program_without_asyncio(new_python):
    with Target(new_python, "ready.py") as target:
        assert dump(target, "--async")["tasks"] == []
        assert "No asyncio tasks" in strobe("dump", "--async", target.pid).stdout


def test_too_old_for_tasks(python):
    if python.at_least(*FIRST):
        pytest.skip("has them")
    with Target(python, "ready.py") as target:
        result = strobe("dump", "--async", target.pid)
        assert "tasks" not in dump(target, "--async")
    assert result.returncode == harness.OK
    assert "MainThread" in result.stdout
    assert result.stderr.startswith("strobe: ") and result.stderr.count("\n") == 1
    assert "3.14" in result.stderr


def test_tasks_that_come_and_go_never_crash_strobe(new_python):
    """A loop at full speed: what cannot be read at one instant is said to be so, and what is read is possible."""
    with Target(new_python, "tasks_busy.py") as target:
        for _ in range(50):
            dumped = dump(target, "--async")
            ids = {task["task_id"] for task in dumped["tasks"]}
            for task in dumped["tasks"]:
                assert set(task["awaited_by"]) <= ids
                if task["consistent"] and task["state"] == "awaiting":
                    assert task["frames"][-1]["function"] in ("main", "parent", "child")


def test_interpreters_are_there():
    if not any(python.version >= FIRST for python in interpreters.supported()):
        pytest.skip("no CPython 3.14 or later on this machine")
