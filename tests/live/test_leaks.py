"""Which programs `strobe run` says leak, and at which lines: those that do, and no others."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import interpreters
import numpy_packages
import pytest
from harness import strobe
from leak_programs import CONTAINERS, HARMLESS, HEAD, LEAKING, NUMPY

# The programs wait most of the time; one that gets no processor for long does not grow evenly.
AT_ONCE = 6
# On every interpreter; all of them on one.
FEW_HARMLESS = ("results that a function gathers to its end",)
FEW_LEAKING = ("small objects in a list",)
FEW_CONTAINERS = ("a buffer that is never read",)


def leaks_of(python, name, code, folder, env=None):
    """The report's leaks, the numbers of the lines that are marked, and how long it ran."""
    path, report = folder / f"run {name}.py", folder / f"run {name}.json"
    path.write_text(HEAD + code)
    result = strobe("run", "--no-capture", "-o", report, "--", python.path, path, env=env and {**os.environ, **env})
    assert result.returncode == 0, (name, result)
    marked = [number for number, line in enumerate(path.read_text().split("\n"), 1) if line.endswith("#leak")]
    document = json.loads(report.read_text())
    return document["memory"]["leaks"], marked, document["elapsed_s"]


def all_leaks_of(python, programs, folder):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda name: leaks_of(python, name, programs[name], folder), programs)
        return dict(zip(programs, found))


def check_harmless(found):
    assert {name: leaks for name, (leaks, *_) in found.items() if leaks} == {}


def check_leaking(found, least_survivors=5):
    wrong = {
        name: (leaks, marked, elapsed_s)
        for name, (leaks, marked, elapsed_s) in found.items()
        if {leak["line"] for leak in leaks} != set(marked)
    }
    assert wrong == {}
    for name, (leaks, _, elapsed_s) in found.items():
        for leak in leaks:
            assert leak["likelihood"] >= 0.75 and leak["rises"] >= 5 and leak["survivors"] >= least_survivors, (name, leak)
            # It grew evenly, more or less, by what else the machine does: so a median is in the middle.
            assert 0.1 * elapsed_s <= leak["age_s"] <= 0.9 * elapsed_s, (name, leak)
            assert leak["live_bytes"] == pytest.approx(leak["bytes_per_s"] * elapsed_s, rel=0.7), (name, leak)


def test_no_leak_where_there_is_none(any_python, tmp_path):
    check_harmless(all_leaks_of(any_python, HARMLESS, tmp_path))


def test_numpy(tmp_path):
    """With the newest interpreter that has it."""
    for python in reversed(interpreters.supported()):
        folder = numpy_packages.folder(python)
        if folder is not None:
            leaks, *_ = leaks_of(python, "numpy", NUMPY, tmp_path, {"PYTHONPATH": str(folder)})
            assert leaks == []
            return
    pytest.skip("no NumPy for any interpreter")


def test_planted_leaks_are_found(any_python, tmp_path):
    found = all_leaks_of(any_python, {**LEAKING, **CONTAINERS}, tmp_path)
    check_leaking({name: found[name] for name in LEAKING})
    check_leaking({name: found[name] for name in CONTAINERS}, least_survivors=0)


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory):
    """A few programs on every interpreter, all at once: leaks_of by (interpreter, program)."""
    all_programs = {**HARMLESS, **LEAKING, **CONTAINERS}
    programs = {name: all_programs[name] for name in FEW_CONTAINERS + FEW_HARMLESS + FEW_LEAKING}
    wanted = [(python, name) for python in interpreters.supported() for name in programs]
    folders = {python: tmp_path_factory.mktemp("everywhere") for python in interpreters.supported()}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda one: leaks_of(one[0], one[1], programs[one[1]], folders[one[0]]), wanted)
        return dict(zip(wanted, found))


def test_on_every_interpreter(python, everywhere):
    check_harmless({name: everywhere[python, name] for name in FEW_HARMLESS})
    check_leaking({name: everywhere[python, name] for name in FEW_LEAKING})
    check_leaking({name: everywhere[python, name] for name in FEW_CONTAINERS}, least_survivors=0)
