"""What CI relies on: a Python that it did not test fails its tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def run_without_interpreters(folder, **environment):
    """The last line of a run of the tests that interpreters are there, where none are."""
    asked = ("CI", "STROBE_REQUIRE_ALL", "STROBE_PYTHONS")
    inherited = {name: value for name, value in os.environ.items() if name not in asked}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", TESTS / "pytest.ini"]
    finished = subprocess.run(
        [*command, TESTS / "live" / "test_interpreters.py"],
        env={**inherited, "PATH": str(folder), "PYENV_ROOT": str(folder), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    return finished.stdout.splitlines()[-1]


def test_a_missing_interpreter_is_a_failure_in_ci(tmp_path):
    for environment in ({"STROBE_REQUIRE_ALL": "1"}, {"CI": "true"}):
        assert re.match("9 failed, 1 passed", run_without_interpreters(tmp_path, **environment))
    assert re.match("1 passed, 9 skipped", run_without_interpreters(tmp_path))


def test_ci_asks_for_all_interpreters():
    assert "export STROBE_REQUIRE_ALL=1\n" in (TESTS.parent / ".ci" / "run").read_text()
