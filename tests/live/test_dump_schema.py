"""What `strobe dump --json` writes is what docs/dump.schema.json says."""

import json
import os
import subprocess

import harness
import pytest
from harness import Target, strobe

SCHEMA = harness.HERE.parent.parent / "docs" / "dump.schema.json"


@pytest.fixture(scope="module")
def validator():
    if not os.environ.get("CI"):
        pytest.importorskip("jsonschema", reason="tools/install-deps consumers")
    import jsonschema

    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("command", [["names.py"], ["locals.py"], ["threads.py"], ["deep.py", 50]], ids=lambda c: c[0])
def test_dumps_fit_the_schema(python, validator, command):
    with Target(python, *command) as target:
        for options in ([], ["--locals"]):
            validator.validate(strobe("dump", "--json", *options, target.pid).json())


def test_tasks_fit_the_schema(python, validator):
    if not python.at_least(3, 14):
        pytest.skip("asyncio tells of its tasks from 3.14 on")
    with Target(python, "tasks.py", "gather") as target:
        dumped = strobe("dump", "--json", "--async", "--locals", target.pid).json()
    validator.validate(dumped)
    assert dumped["tasks"]


def test_the_schema_is_no_empty_promise(validator):
    """A frame without a line, a thread in an unknown state, a task without a name: it must not take everything."""
    frame = {"function": "f", "file": "/x.py", "line": 1, "end_line": 1, "column": 0, "end_column": 1}
    thread = {
        "thread_id": 1, "native_id": 1, "name": None, "state": "idle", "gil": "none", "interpreter": 0,
        "collecting": False, "consistent": True, "frames": [frame, {"error": "torn"}],
    }  # fmt: skip
    document = {"pid": 1, "python": None, "free_threaded": False, "command": [], "interpreters": [], "threads": [thread]}
    validator.validate(document)
    for spoilt in ({**thread, "state": "dead"}, {**thread, "frames": [{"function": "f"}]}, {**thread, "more": 1}):
        assert not validator.is_valid({**document, "threads": [spoilt]})
    assert not validator.is_valid({**document, "tasks": []})


def peak_kilobytes(*arguments):
    process = subprocess.Popen([harness.STROBE, *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    return usage.ru_maxrss


@pytest.mark.skipif(harness.SANITIZED, reason="what was freed counts")
def test_json_takes_no_more_memory_than_text(any_python):
    """It is written as it comes. A thousand threads in a hundred frames each, which as objects would be 100 MB."""
    with Target(any_python, "thousand.py", 1000, 95) as target:
        plain = peak_kilobytes("dump", target.pid)
        # What the allocator and the kernel round differs by a few pages.
        assert peak_kilobytes("dump", "--json", target.pid) < plain + 1024
