"""Builds with a JIT compiler (3.14 and later), switched on: code that it compiled is Python, and stands on its lines."""

import json
import os
import subprocess

import pytest
from harness import strobe
from test_run_agent import TICK_S, run  # noqa: F401 (a fixture)

SWITCHED_ON = {**os.environ, "PYTHON_JIT": "1"}
# Functions that take turns, at random lengths; what each says of itself.
PROGRAM = """
import json, random, sys, time
spent = dict.fromkeys(("loop", "objects", "checks"), 0.0)
compiled = 0
class Point:
    def __init__(self, x): self.x = x
def step(x): return x + 1
def loop(n):
    x = 0
    for i in range(n):
        x = step(x) ^ i
def objects(n):
    for i in range(n): Point(i)
def checks(n):
    global compiled
    for i in range(n): compiled += sys._jit.is_active()
functions = [loop, objects, checks]
print("ready", flush=True)
end = time.process_time() + float(sys.argv[1])
while time.process_time() < end:
    function, n = random.choice(functions), random.randrange(20000, 60000)
    start = time.thread_time()
    function(n)
    spent[function.__name__] += time.thread_time() - start
print(json.dumps([spent, compiled]))
"""


@pytest.fixture
def jit_python(python):
    code = "import sys; print(getattr(sys, '_jit', None) is not None and sys._jit.is_available())"
    told = subprocess.run([python.path, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    if told.strip() != "True":
        pytest.skip("it has no JIT compiler")
    return python


def test_compiled_code_is_python(jit_python, run, tmp_path):  # noqa: F811
    (tmp_path / "x.py").write_text(PROGRAM)
    ran = run("--", jit_python.path, "x.py", "2", env=SWITCHED_ON)
    spent, compiled = json.loads(ran.result.stdout.splitlines()[-1])
    assert compiled > 0
    whole = sum(spent.values())
    # A tick is charged where it strikes: of this many the standard deviation is a fortieth.
    for name, seconds in spent.items():
        assert ran.functions(name, "total_cpu_s") == pytest.approx(seconds, abs=0.1 * whole + 3 * TICK_S), name
    rows = [row for row in ran.report["functions"] if row["path"] == str(tmp_path / "x.py")]
    parts = {part: sum(row["cpu_s"][part] for row in rows) for part in ("python", "native", "kernel")}
    # What is called (is_active) is native, and what makes objects.
    assert parts["python"] > 0.6 * whole, parts


def test_compiled_code_from_outside(jit_python, tmp_path):
    (tmp_path / "x.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [jit_python.path, "x.py", "2"], cwd=tmp_path, env=SWITCHED_ON, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    seen = strobe("attach", "--no-capture", "-f", "json", process.pid)
    spent, compiled = json.loads(process.communicate()[0])
    assert seen.returncode == 0, seen
    assert compiled > 0
    totals = {row["function"]: row["total_cpu_s"] for row in seen.json()["functions"]}
    whole = sum(totals[name] for name in spent)
    for name, seconds in spent.items():
        assert totals[name] / whole == pytest.approx(seconds / sum(spent.values()), abs=0.1), (name, totals, spent)
