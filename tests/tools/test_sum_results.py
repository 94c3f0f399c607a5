"""tools/sum-results: adds up, and a runner that did not run has not passed."""

import subprocess
import sys
from pathlib import Path

import pytest

SUM_RESULTS = Path(__file__).resolve().parent.parent.parent / "tools" / "sum-results"

JUNIT = """<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure/></testcase></testsuite>
<testsuite><testcase name="c"><skipped/></testcase><testcase name="d"><error/></testcase></testsuite></testsuites>"""


@pytest.fixture
def sum_results(tmp_path):
    def run(*arguments, **files):
        paths = []
        for name, text in files.items():
            paths.append(tmp_path / name.replace("_", "."))
            paths[-1].write_text(text)
        command = [sys.executable, SUM_RESULTS, *arguments, *paths]
        finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return finished.returncode, finished.stdout

    return run


def test_adds_up(sum_results):
    assert sum_results(a_xml=JUNIT, lint_txt="PASS a b\nnoise\nFAIL c\n") == (1, "2 passed, 3 failed, 1 skipped\n")


def test_all_well(sum_results):
    assert sum_results("make test=0", lint_txt="PASS a\nPASS b\n") == (0, "2 passed, 0 failed, 0 skipped\n")


def test_a_missing_file_is_a_failure(sum_results):
    assert sum_results("/nowhere.xml", lint_txt="PASS a\n") == (1, "1 passed, 1 failed, 0 skipped\n")


@pytest.mark.parametrize("text", ["", "<testsuites/>", "<testsuites><testca"])
def test_a_file_without_results_is_a_failure(sum_results, text):
    assert sum_results(a_xml=text) == (1, "0 passed, 1 failed, 0 skipped\n")


def test_a_command_that_failed_without_a_failed_result_is_a_failure(sum_results):
    assert sum_results("make test=2", lint_txt="PASS a\n") == (1, "1 passed, 1 failed, 0 skipped\n")
    assert sum_results("make test=2", lint_txt="FAIL a\n") == (1, "0 passed, 1 failed, 0 skipped\n")
