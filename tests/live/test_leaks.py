"""Which programs `strobe run` says leak, and at which lines: those that do, and no others."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import interpreters
import numpy_packages
import pytest
from harness import strobe
from leak_programs import HARMLESS, HEAD, LEAKING, NUMPY, SECONDS

# The programs wait most of the time.
AT_ONCE = 12
# On every interpreter; all of them on one.
FEW_HARMLESS = ("results that a function gathers to its end",)
FEW_LEAKING = ("small objects in a list",)


def leaks_of(python, name, code, folder, env=None):
    """The report's leaks, and the numbers of the lines that are marked."""
    path, report = folder / f"run {name}.py", folder / f"run {name}.json"
    path.write_text(HEAD + code)
    result = strobe("run", "--no-capture", "-o", report, "--", python.path, path, env=env and {**os.environ, **env})
    assert result.returncode == 0, (name, result)
    marked = [number for number, line in enumerate(path.read_text().split("\n"), 1) if line.endswith("#leak")]
    return json.loads(report.read_text())["memory"]["leaks"], marked


def all_leaks_of(python, programs, folder):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda name: leaks_of(python, name, programs[name], folder), programs)
        return dict(zip(programs, found))


def check_harmless(found):
    assert {name: leaks for name, (leaks, _) in found.items() if leaks} == {}


def check_leaking(found):
    wrong = {
        name: (leaks, marked)
        for name, (leaks, marked) in found.items()
        if {leak["line"] for leak in leaks} != set(marked)
    }
    assert wrong == {}
    for name, (leaks, _) in found.items():
        for leak in leaks:
            assert leak["likelihood"] >= 0.75 and leak["rises"] >= 5 and leak["survivors"] >= 5, (name, leak)
            # Half of it is older than a fifth of the time, and it grew evenly.
            assert SECONDS / 5 <= leak["age_s"] <= SECONDS * 0.8, (name, leak)
            assert leak["live_bytes"] == pytest.approx(leak["bytes_per_s"] * SECONDS, rel=0.6), (name, leak)


def test_no_leak_where_there_is_none(any_python, tmp_path):
    check_harmless(all_leaks_of(any_python, HARMLESS, tmp_path))


def test_numpy(tmp_path):
    """With the newest interpreter that has it."""
    for python in reversed(interpreters.supported()):
        folder = numpy_packages.folder(python)
        if folder is not None:
            leaks, _ = leaks_of(python, "numpy", NUMPY, tmp_path, {"PYTHONPATH": str(folder)})
            assert leaks == []
            return
    pytest.skip("no NumPy for any interpreter")


def test_planted_leaks_are_found(any_python, tmp_path):
    check_leaking(all_leaks_of(any_python, LEAKING, tmp_path))


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory):
    """A few programs on every interpreter, all at once: leaks_of by (interpreter, program)."""
    programs = {name: {**HARMLESS, **LEAKING}[name] for name in FEW_HARMLESS + FEW_LEAKING}
    wanted = [(python, name) for python in interpreters.supported() for name in programs]
    folders = {python: tmp_path_factory.mktemp("everywhere") for python in interpreters.supported()}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda one: leaks_of(one[0], one[1], programs[one[1]], folders[one[0]]), wanted)
        return dict(zip(wanted, found))


def test_on_every_interpreter(python, everywhere):
    check_harmless({name: everywhere[python, name] for name in FEW_HARMLESS})
    check_leaking({name: everywhere[python, name] for name in FEW_LEAKING})
