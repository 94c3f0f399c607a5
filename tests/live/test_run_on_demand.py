"""`strobe run --on-demand`, and `strobe start` and `strobe stop`: what is told to be sampled is, and nothing else."""

import json
import subprocess

import harness
import pytest
from harness import STROBE, strobe
from looks import Looks
from test_run_agent import BURN, TICK_S, WAIT_PERIOD_S

ON_DEMAND = BURN + """
def before(): burn(0.2)
def during(): burn(0.2)
def after(): burn(0.2)
for part in (before, during, after):
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    part()
"""


def run_on_demand(python, folder, code):
    """The report, and the looks."""
    report, capture = folder / "report.json", folder / "c.strobe"
    command = [STROBE, "run", "--capture", capture, "--on-demand", "-o", report, "--", python.path, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        pid = int(running.stdout.readline())
        for control in (None, "start", "stop"):
            if control is not None:
                assert int(running.stdout.readline()) == pid
                told = strobe(control, pid)
                assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
            running.stdin.write(b"\n")
            running.stdin.flush()
        running.communicate(timeout=harness.TIMEOUT_S)
    assert running.returncode == 0
    return json.loads(report.read_text()), Looks(capture)


def test_on_demand(python, tmp_path):
    report, looks = run_on_demand(python, tmp_path, ON_DEMAND)
    rows = {row["function"]: sum(row["cpu_s"].values()) for row in report["functions"]}
    total = {row["function"]: row["total_cpu_s"] for row in report["functions"]}
    assert total["during"] == pytest.approx(0.2, abs=looks.bound(3 * TICK_S, edges=2)), total
    assert total.get("before", 0) <= TICK_S and total.get("after", 0) <= TICK_S, (total, rows)


def test_on_demand_waits_as_well(any_python, tmp_path):
    """Seen from outside, where strobe looks a hundred times a second, or less often on a busy machine."""
    code = "import time\n" + ON_DEMAND.replace("burn(0.2)", "time.sleep(0.5)")
    report, _ = run_on_demand(any_python, tmp_path, code)
    waits = {row["function"]: row["total_wait_s"] for row in report["functions"]}
    bound = 0.15 + report["samples"]["missed"] * WAIT_PERIOD_S
    assert waits["during"] == pytest.approx(0.5, abs=bound), waits
    assert waits.get("before", 0) + waits.get("after", 0) <= bound, waits


TWENTY_THREADS = BURN + """
import threading
for _ in range(20):
    thread = threading.Thread(target=burn, args=(0.002,))
    thread.start()
    thread.join()
"""


def test_what_threads_use_at_their_end_while_paused_does_not_count(python, tmp_path):
    """Less than a tick each: no clock strikes in them."""
    report = tmp_path / "report.json"
    options = ["--no-capture", "--cpu-only", "--on-demand", "-o", report]
    ran = strobe("run", *options, "--", python.path, "-c", TWENTY_THREADS)
    assert ran.returncode == 0, ran
    told = json.loads(report.read_text())
    assert sum(thread["cpu_s"] for thread in told["threads"]) == 0, told["threads"]
    assert told["left_out"].get("self_cpu_s", 0) == 0, told["left_out"]


def test_control_of_what_is_not_under_strobe(any_python):
    harness.assert_refuses(strobe("start", 2**22 + 1), harness.NO_PROCESS)
    for arguments in (["start"], ["stop", "x"], ["stop", 1, 2]):
        harness.assert_refuses(strobe(*arguments), harness.USAGE)
    code = "print('ready', flush=True); input()"
    with subprocess.Popen([any_python.path, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"ready\n"
        result = strobe("stop", running.pid)
        harness.assert_refuses(result, harness.FAILED)
        assert "does not run under 'strobe run'" in result.stderr
        running.communicate(b"\n", timeout=harness.TIMEOUT_S)
