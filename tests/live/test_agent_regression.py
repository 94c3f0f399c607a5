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
# Of a module, or of a part of one that regrtest splits (test_asyncio.test_events): as it says that it has finished.
FINISHED = re.compile(r"\[ *\d+/\d+(?:/\d+)?\] (?:test\.)?(test_[\w.]+) (.+)")
# In free-threaded 3.13 each of these fails by itself, after half a minute.
IGNORED = ("*.test_context_already_entered*", "*.test_context_not_a_context*")
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
    ignored = [word for pattern in IGNORED for word in ("--ignore", pattern)]
    options = ["-j2", "--timeout", str(timeout_s), "--junit-xml", str(junit)]
    return [python.path, "-m", "test", *options, *modules, *ignored]


def failed_modules(output):
    return {module for module, end in FINISHED.findall(output) if not end.startswith(GOOD)}


def failed_tests(module, junit):
    """Those of the module; itself when it failed without a test that did."""
    cases = ElementTree.parse(junit).iter("testcase") if junit.exists() else []
    failed = {case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None}
    return {name.split(" ")[0] for name in failed if f".{module}." in name} or {module}


def again(python, module, tests, junit, run):
    """The failed ones of a module once more; what fails then."""
    matches = [word for name in sorted(tests - {module}) for word in ("--match", name)]
    junit.unlink(missing_ok=True)
    ended = dict(FINISHED.findall(run(regrtest(python, [module], junit) + matches)))
    return set() if ended[module].startswith("passed") else failed_tests(module, junit)


@pytest.mark.timeout(3 * TIMEOUT_S + 60)
@pytest.mark.parametrize("regression_python", PYTHONS, ids=interpreters.labels(PYTHONS))
def test_passes_as_it_does_alone(regression_python, tmp_path):
    junit, report = tmp_path / "with.xml", tmp_path / "report.json"

    def with_agent(command):
        return strobe("run", "--no-capture", "-o", report, "--", *command, cwd=tmp_path, timeout=TIMEOUT_S)

    def alone(command):
        return subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    ran = with_agent(regrtest(regression_python, MODULES, junit))
    finished = {module.split(".")[0] for module, _ in FINISHED.findall(ran.stdout)}
    assert finished == set(MODULES), ran
    # Children that were given no environment are said; nothing else is.
    said = [line for line in ran.stderr.splitlines() if line.startswith("strobe: ")]
    assert all("was not loaded into process" in line for line in said), said
    assert len(json.loads(report.read_text())["processes"]) > len(MODULES)
    if ran.returncode == 0:
        return
    # What this machine or this build of the interpreter cannot do fails alone, too. Some of these tests are about
    # time and fail now and then on a busy machine (which is what regrtest's own --rerun is for): what failed for
    # strobe's sake fails each time, and only with it.
    for module in failed_modules(ran.stdout):
        tests = failed_tests(module, junit)
        tests -= again(regression_python, module, tests, tmp_path / "alone.xml", alone)
        if tests:
            failed = again(regression_python, module, tests, tmp_path / "again.xml", lambda line: with_agent(line).stdout)
            assert not failed, (failed, ran.stdout[-5000:])
