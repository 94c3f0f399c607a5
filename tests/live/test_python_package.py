"""The package `strobe` (python/strobe): what a program says is to be sampled is, and nothing else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import TARGETS, strobe
from looks import Looks

TOP = Path(__file__).resolve().parents[2]
PACKAGE = TOP / "python"
# Of each part's begin and end, where a clock's call may fall to its neighbour: see test_run_agent.py.
TICK_S = 0.01
SECONDS = 0.06


@pytest.fixture
def environment():
    return dict(os.environ, PYTHONPATH=str(PACKAGE), PYTHONDONTWRITEBYTECODE="1")


def seconds_by_function(path):
    rows = json.loads(path.read_text())["functions"]
    return {row["function"]: sum(row["cpu_s"].values()) for row in rows}


def test_what_is_said_is_sampled(python, tmp_path, environment):
    report, capture = tmp_path / "report.json", tmp_path / "c.strobe"
    script = TARGETS / "switched.py"
    options = ["--capture", capture, "--on-demand", "--all", "-o", report]
    result = strobe("run", *options, "--", python.path, script, SECONDS, env=environment)
    assert result.returncode == 0, result
    truth, seen, looks = json.loads(result.stdout), seconds_by_function(report), Looks(capture)
    for name, seconds in truth.items():
        expected = seconds if name.startswith("seen") else 0
        # Some work for more than one part of time.
        bound = looks.bound(3 * TICK_S, edges=1 + round(seconds / SECONDS))
        assert seen.get(name, 0) == pytest.approx(expected, abs=bound), (name, seen)


def test_all_is_sampled_when_not_on_demand(any_python, tmp_path, environment):
    """profile() leaves as it is what is sampled anyway."""
    code = "import strobe\nassert strobe.is_profiling()\nwith strobe.profile(): pass\nassert strobe.is_profiling()"
    result = strobe("run", "--no-capture", "--quiet", "--", any_python.path, "-c", code, env=environment, cwd=tmp_path)
    assert result.returncode == 0, result


WITHOUT = """
import strobe
strobe.start()
assert not strobe.is_profiling()
with strobe.profile() as block, block:
    pass
def function(): pass
assert strobe.profile(function) is function and strobe.profile()(function) is function
strobe.stop()
assert not {"ctypes", "_ctypes", "inspect"} & (set(sys.modules) - before), "these take longer than all of this"
"""


def test_without_strobe(python, environment):
    code = "import sys\nbefore = set(sys.modules)\n" + WITHOUT
    subprocess.run([python.path, "-c", code], env=environment, check=True, timeout=60)


def test_from_outside_there_is_no_agent(any_python, tmp_path, environment):
    code = "import strobe\nstrobe.start()\nassert not strobe.is_profiling()"
    command = ["run", "--no-agent", "--quiet", "--no-capture", "--", any_python.path, "-c", code]
    result = strobe(*command, env=environment, cwd=tmp_path)
    assert result.returncode == 0, result


SIGNALS = """
import random, signal, strobe
ran = 0
def handle(number, frame):
    global ran
    ran += 1
    with strobe.profile():
        assert strobe.is_profiling()
    if ran < 300:
        set_timer(random.uniform(1e-6, 1e-4))
def set_timer(seconds):
    # Anew each time: one handler in another ad infinitum is what a slow machine makes of a periodic timer. Its period is
    # for 3.12 and before, which can forget a signal until the next one comes: a signal during COMPUTE_EVAL_BREAKER
    # (Python/ceval_gil.c) leaves signals_pending set and eval_breaker clear.
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
signal.signal(signal.SIGALRM, handle)
set_timer(1e-4)
while ran < 300:
    with strobe.profile():
        assert strobe.is_profiling()
    with strobe.profile(), strobe.profile():
        pass
    strobe.stop()
signal.setitimer(signal.ITIMER_REAL, 0)
assert not strobe.is_profiling()
"""


def test_blocks_in_signal_handlers(python, tmp_path, environment):
    """Wherever in a block's begin or end the handler comes, it neither hangs nor changes what holds afterwards."""
    command = ["run", "--no-capture", "--quiet", "--on-demand", "--", python.path, "-c", SIGNALS]
    result = strobe(*command, env=environment, cwd=tmp_path)
    assert result.returncode == 0, result


def test_its_version_is_strobes():
    versions = [
        re.search(r"^\s*version\s*[:=]\s*['\"]([^'\"]+)['\"]", (TOP / path).read_text(), re.MULTILINE)[1]
        for path in ("meson.build", "python/pyproject.toml")
    ]
    assert versions[0] == versions[1]


def test_it_can_be_installed(tmp_path):
    """As `pip install ./python` does it, but without asking anybody for the builder: it has to be here."""
    pytest.importorskip("setuptools", minversion="70.1")  # with wheels
    source = tmp_path / "python"
    subprocess.run(["cp", "-r", PACKAGE, source], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--quiet", "--target", tmp_path / "target", source], check=True, timeout=100)
    installed = {path.name for path in (tmp_path / "target" / "strobe").iterdir()}
    assert {path.name for path in (PACKAGE / "strobe").glob("*.py")} <= installed
