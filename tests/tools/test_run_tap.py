"""tests/unit/run-tap: a test that is skipped has not failed, one that has failed has."""

import subprocess
from pathlib import Path

RUN_TAP = Path(__file__).resolve().parent.parent / "unit" / "run-tap"


def run_tap(text, status):
    finished = subprocess.run([RUN_TAP, "sh", "-c", f"printf %s '{text}'; exit {status}"], stdout=subprocess.PIPE, text=True)
    return finished.stdout, finished.returncode


def test_a_skipped_test_has_not_failed():
    said = "1..3\nok 1 - test_a\nnot ok 2 # SKIP test_b\nnot ok 3 - test_c\n# not ok 4 # SKIP d\n"
    told = "1..3\nok 1 - test_a\nok 2 - test_b # SKIP\nnot ok 3 - test_c\n# not ok 4 # SKIP d\n"
    assert run_tap(said, 1) == (told, 1)


def test_the_exit_status_is_the_programs():
    assert run_tap("", 0) == ("", 0)
    assert run_tap("1..1\n", 139) == ("1..1\n", 139)
