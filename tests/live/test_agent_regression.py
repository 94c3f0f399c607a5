"""The interpreters' own regression tests under `strobe run`: what passes alone passes with the agent.

Only those that have to do with what the agent touches (signals, threads, processes, sockets, code objects, the C API), and
only on the newest interpreter of each kind, two modules at a time: three minutes for each on two quiet cores.
AGENT_REGRESSION=all runs more of them on every interpreter, which takes hours.
"""

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import interpreters
import pytest
from harness import strobe

ALL = os.environ.get("AGENT_REGRESSION") == "all"
MODULES = """
    test_signal test_threadsignals test_threading test_fork1 test_subprocess test_faulthandler test_eintr test_gc test_code
    test_asyncio test_multiprocessing_fork test_socket test_capi test_embed
""".split()
if ALL:
    MODULES += """
        test_multiprocessing_spawn test_concurrent_futures test_posix test_sys test_exceptions test_generators
        test_coroutines
    """.split()
TIMEOUT_S = 7200 if ALL else 900
# Of a module: as regrtest says that it has finished.
FINISHED = re.compile(r"\[ *\d+/\d+(?:/\d+)?\] (test_\w+) (.+)")
GOOD = ("passed", "skipped", "run no tests", "ran no tests")


def has_tests(python):
    command = [python.path, "-c", "import test.test_signal, test.test_threading"]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def newest():
    """The newest interpreter with its tests, with a GIL and without."""
    found = {}
    for python in interpreters.supported():
        if not python.debug and has_tests(python):
            found[python.free_threaded] = python
    return list(found.values())


PYTHONS = [python for python in interpreters.supported() if has_tests(python)] if ALL else newest()


def regrtest(python, modules, junit):
    timeout_s = TIMEOUT_S // 2
    return [python.path, "-m", "test", "-j2", "--timeout", str(timeout_s), *modules, "--junit-xml", str(junit)]


def failed_modules(output):
    return {module for module, end in FINISHED.findall(output) if not end.startswith(GOOD)}


def failed_tests(junit):
    """Empty, too, when a module failed before its tests began."""
    if not junit.exists():
        return set()
    cases = ElementTree.parse(junit).iter("testcase")
    return {case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None}


@pytest.mark.timeout(2 * TIMEOUT_S + 60)
@pytest.mark.parametrize("regression_python", PYTHONS, ids=interpreters.labels(PYTHONS))
def test_passes_as_it_does_alone(regression_python, tmp_path):
    junit, report = tmp_path / "with.xml", tmp_path / "report.json"
    command = regrtest(regression_python, MODULES, junit)
    ran = strobe("run", "--no-capture", "-o", report, "--", *command, cwd=tmp_path, timeout=TIMEOUT_S)
    finished = dict(FINISHED.findall(ran.stdout))
    assert set(finished) == set(MODULES), ran
    # Children that were given no environment are said; nothing else is.
    said = [line for line in ran.stderr.splitlines() if line.startswith("strobe: ")]
    assert all("was not loaded into process" in line for line in said), said
    assert len(json.loads(report.read_text())["processes"]) > len(MODULES)
    if ran.returncode == 0:
        return
    # What this machine or this build of the interpreter cannot do fails alone, too.
    modules, tests = failed_modules(ran.stdout), failed_tests(junit)
    command = regrtest(regression_python, sorted(modules), tmp_path / "alone.xml")
    for name in sorted(tests):
        command += ["--match", name]
    alone = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert failed_modules(alone.stdout) == modules, ran.stdout[-5000:]
    assert failed_tests(tmp_path / "alone.xml") == tests, ran.stdout[-5000:]
