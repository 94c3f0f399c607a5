"""The interpreters' own regression tests under the agent: what passes alone passes with it.

Only those that have to do with what the agent touches (signals, threads, processes, code objects), and only on the
newest interpreter of each kind, so that it takes minutes; AGENT_REGRESSION=all runs more of them on every interpreter,
which takes hours.
"""

import os
import subprocess
import xml.etree.ElementTree as ElementTree

import interpreters
import pytest
from agent_reader import ENDED, Watched

ALL = os.environ.get("AGENT_REGRESSION") == "all"
MODULES = """
    test_signal test_threadsignals test_threading test_fork1 test_subprocess test_faulthandler test_eintr test_gc test_code
""".split()
if ALL:
    MODULES += """
        test_asyncio test_multiprocessing_fork test_multiprocessing_spawn test_concurrent_futures test_socket test_capi
        test_embed test_posix test_sys test_exceptions test_generators test_coroutines
    """.split()


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


def failures(path):
    """The names of the tests that failed, from the report that regrtest wrote; None when it wrote none."""
    if not path.exists():
        return None
    cases = ElementTree.parse(path).iter("testcase")
    return {case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None}


@pytest.mark.timeout(1800 if ALL else 300)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("regression_python", PYTHONS, ids=interpreters.labels(PYTHONS))
def test_passes_as_it_does_alone(regression_python, module, tmp_path):
    timeout_s = 1500 if ALL else 250
    command = [regression_python.path, "-m", "test", "-j1", "--timeout", str(timeout_s), module, "--junit-xml"]
    # Nobody reads: there are hundreds of processes, and it is the program that is looked at.
    watched = Watched(command=[*command, tmp_path / "with.xml"], read=False, cwd=tmp_path, timeout_s=timeout_s + 30)
    report = watched.stdout.decode(errors="replace")[-3000:]
    assert all(region.header["reason"] == "" for region in watched.regions.values())
    assert any(region.header["state"] == ENDED and region.main.samples for region in watched.regions.values())
    if watched.returncode == 0:
        return
    # What this machine or this build of the interpreter cannot do fails alone, too.
    alone = [*command, tmp_path / "alone.xml"]
    assert subprocess.run(alone, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0, report
    assert failures(tmp_path / "with.xml") == failures(tmp_path / "alone.xml"), report
