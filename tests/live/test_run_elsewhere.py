"""`strobe run` where the agent is not what everything is seen with: it comes late, not at all, or gives up."""

import json
import os
import signal
import subprocess

import pytest
from harness import BIRTH_S, ENDING_S, TARGETS, TOLD_OF_BIRTHS
from test_places import environment_of, library_of
from test_run_agent import BURN, TICK_S, run  # noqa: F401 (a fixture)

# From outside, CPU time is charged a hundred times a second to where a thread is then; strobe needs up to 0.2 s to know
# that there is no agent, and whatever was used meanwhile is charged to where the thread is first seen.
LOOK_S = 0.01
DECIDING_S = 0.3

THREADS = BURN + """
import json, threading
spent = {}
def work():
    start = time.thread_time()
    burn(0.2)
    spent["work"] = time.thread_time() - start
def root():
    start = time.thread_time()
    burn(0.2)
    spent["root"] = time.thread_time() - start
thread = threading.Thread(target=work)
thread.start()
thread.join()
root()
print(json.dumps(spent))
"""


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    path = tmp_path_factory.mktemp("embedder") / "application"
    subprocess.run(["cc", "-O1", "-o", path, TARGETS / "embed_late.c", "-ldl"], check=True)
    return path


@pytest.mark.parametrize("scope", ["global", "local"])
def test_a_program_that_loads_python_late(python, run, tmp_path, embedder, scope):  # noqa: F811
    if not python.shared:
        pytest.skip("no libpython to load")
    (tmp_path / "x.py").write_text(THREADS)
    environment = dict(os.environ, **environment_of(python))
    ran = run("--", embedder, library_of(python), scope, "x.py", env=environment)
    assert not [line for line in ran.result.stderr.splitlines() if line.startswith("strobe: the agent")], ran.result
    for name, seconds in json.loads(ran.result.stdout).items():
        assert ran.functions(name, "total_cpu_s") == pytest.approx(seconds, abs=ran.looks.bound(3 * TICK_S)), name
        # By the agent, who knows the parts.
        native = sum(row["cpu_s"]["native"] for row in ran.report["functions"] if row["function"] == "burn")
        assert native > 0.2
    # What it had before is in the footprint, too.
    assert 30_000_001 < ran.report["memory"]["peak_bytes"] < 60_000_000


# Three kinds of work, and as much waiting, of a length at which looks are many.
ALONE = BURN + """
import json
def first(): burn(0.5)
def second(): burn(0.3)
def rest(): time.sleep(0.3)
before = time.process_time()
for part in first, second, rest: part()
print(json.dumps([before, time.process_time()]), flush=True)
"""


def assert_seen_from_outside(ran, before, whole, others=0):
    """before, whole: what the program says it used until it began its work, and until it told; others: what other
    processes say."""
    first, second = ran.functions("first", "total_cpu_s"), ran.functions("second", "total_cpu_s")
    # What is used between two looks is charged to where the second finds it: looks that strobe could not take, as it got
    # no processor, are told of.
    unseen_s = ran.report["samples"]["missed"] * LOOK_S
    assert first == pytest.approx(0.5, abs=DECIDING_S + 2 * TICK_S + unseen_s)
    assert second == pytest.approx(0.3, abs=0.05 + unseen_s)
    # All that the process used since it was first seen is charged to some place: what it used before is at most its
    # start, what it uses after it has told is that for its end.
    total = sum(row["self_cpu_s"] for row in ran.report["functions"] if "self_cpu_s" in row)
    assert whole - before - 5 * TICK_S - BIRTH_S <= total <= whole + others + 2 * ENDING_S
    waited = ran.functions("rest", "total_wait_s")
    assert waited == pytest.approx(0.3, abs=(3 + ran.report["samples"]["missed"]) * LOOK_S)


UNSEEN = BURN + """
import json, signal
def first(): burn(0.3)
def second(): burn(0.6)
first()
os.kill(int(sys.argv[1]), signal.SIGCONT)
second()
print(json.dumps(time.process_time()), flush=True)
"""


def test_a_child_that_is_seen_late(any_python, run, tmp_path):  # noqa: F811
    """strobe gets no processor while the child begins: what that used meanwhile is in the sum all the same, where it is
    known to have been born."""
    (tmp_path / "x.py").write_text(UNSEEN)
    code = """if True:
        import os, signal, subprocess, sys
        strobe = os.getppid()
        os.kill(strobe, signal.SIGSTOP)
        subprocess.run([sys.executable, "x.py", str(strobe)], env={}, check=True)
    """
    ran = run("--", any_python.path, "-c", code)
    whole = json.loads(ran.result.stdout)
    # Its parent has used some, too.
    total = sum(row["self_cpu_s"] for row in ran.report["functions"] if "self_cpu_s" in row)
    unseen_s = 0 if TOLD_OF_BIRTHS else 0.3 + BIRTH_S
    assert whole - unseen_s - 0.05 < total < whole + 0.2


def said_of(ran):
    return [line for line in ran.result.stderr.splitlines() if line.startswith("strobe: the agent")]


def test_a_child_without_the_agent(python, run, tmp_path):  # noqa: F811
    """One whose environment was emptied."""
    (tmp_path / "x.py").write_text(ALONE)
    code = """if True:
        import subprocess, sys, time
        subprocess.run([sys.executable, "x.py"], env={}, check=True)
        print(time.process_time())
    """
    ran = run("--", python.path, "-c", code)
    of_child, of_parent = map(json.loads, ran.result.stdout.splitlines())
    assert_seen_from_outside(ran, *of_child, others=of_parent)
    (said,) = said_of(ran)
    assert "was not loaded into process" in said and "sampled from outside" in said


BRIEF = BURN + """
before = time.process_time()
burn(0.06)
print(time.process_time() - before)
"""


def test_brief_children_without_the_agent(python, run, tmp_path):  # noqa: F811
    """They have ended before it is clear that no agent will come."""
    (tmp_path / "x.py").write_text(BRIEF)
    code = "import subprocess, sys\nfor i in range(15): subprocess.run([sys.executable, 'x.py'], env={}, check=True)"
    ran = run("--", python.path, "-c", code)
    spent = [float(line) for line in ran.result.stdout.splitlines()]
    # Of 60 ms, what a process uses after the last look at it is not seen, and it may be seen late; where it is at the
    # first look it is charged for its start.
    unseen_s = (2.5 * len(spent) + ran.report["samples"]["missed"]) * LOOK_S + BIRTH_S * len(spent)
    assert ran.functions("burn", "total_cpu_s") == pytest.approx(sum(spent), abs=unseen_s)
    assert said_of(ran)


FORKS = BURN + """
for i in range(10):
    if os.fork() == 0:
        burn(0.03)
        os.execve(sys.executable, [sys.executable, "x.py"], {})
    os.wait()
"""


def test_brief_programs_that_drop_the_agent(python, run, tmp_path):  # noqa: F811
    """Forks that the agent has told of, and that have ended before it is clear that their program will have none."""
    (tmp_path / "x.py").write_text(BRIEF)
    ran = run("--", python.path, "-c", FORKS)
    spent = [float(line) for line in ran.result.stdout.splitlines()]
    # As above; that the agent is gone is seen at the next look, and what was used until then, since its last tick, is in
    # no sum.
    unseen_s = (4 * len(spent) + ran.report["samples"]["missed"]) * LOOK_S
    assert ran.functions("burn", "total_cpu_s") >= sum(spent) + 10 * 0.03 - unseen_s
    assert said_of(ran)


def test_a_program_that_drops_the_agent(any_python, run, tmp_path):  # noqa: F811
    """It becomes the same interpreter again, without the agent's environment."""
    (tmp_path / "x.py").write_text(ALONE)
    code = BURN + "def early(): burn(0.2)\nearly()\nos.execve(sys.executable, [sys.executable, 'x.py'], {})"
    ran = run("--", any_python.path, "-c", code)
    assert ran.functions("early", "total_cpu_s") == pytest.approx(0.2, abs=ran.looks.bound(2 * TICK_S))
    before, whole = json.loads(ran.result.stdout)
    first, second = ran.functions("first", "total_cpu_s"), ran.functions("second", "total_cpu_s")
    # How soon it is noticed that the agent is gone adds to what is not known, and so do looks that strobe could not take.
    unseen_s = ran.report["samples"]["missed"] * LOOK_S
    assert 0.5 - 1.5 * DECIDING_S - unseen_s < first < 0.5 + DECIDING_S + unseen_s
    assert second == pytest.approx(0.3, abs=0.05 + unseen_s)


def test_an_agent_that_gave_up(any_python, run, tmp_path):  # noqa: F811
    """A limit on the size of files leaves no room for what is shared."""
    (tmp_path / "x.py").write_text(ALONE)
    ran = run("--", "sh", "-c", 'ulimit -f 100; exec "$0" x.py', any_python.path)
    assert_seen_from_outside(ran, *json.loads(ran.result.stdout))
    (said,) = said_of(ran)
    assert "ulimit -f" in said and "sampled from outside" in said


STARVED = BURN + """
import json, signal
def first(): burn(0.4)
def second(): burn(0.4)
strobe, more = os.getppid(), float(sys.argv[1])
os.kill(strobe, signal.SIGSTOP)
first()
second()
burn(more)
os.kill(strobe, signal.SIGCONT)
def after(): burn(0.1)
after()
print(json.dumps([time.thread_time()]), flush=True)
"""


def test_strobe_gets_no_processor(any_python, run, tmp_path):  # noqa: F811
    """A ring holds a second of samples of C functions, at a thousand ticks a second a third of that; what comes when it
    is full is counted, and its time is charged to what comes after it."""
    (tmp_path / "x.py").write_text(STARVED)
    ran = run("--", any_python.path, "x.py", 2)
    (whole,) = json.loads(ran.result.stdout)
    total = sum(row["self_cpu_s"] for row in ran.report["functions"] if "self_cpu_s" in row)
    assert whole - 0.05 < total < whole + 0.3
    assert ran.report["samples"]["missed"] > 0
    assert ran.functions("first", "total_cpu_s") > 0.2


REPLACED = BURN + """
def make(name):
    scope = {"burn": burn}
    exec(f"def {name}(seconds): burn(seconds)", scope)
    return scope.pop(name)
def replace(place):
    others = []
    for i in range(1000):
        second = make("second")
        if id(second.__code__) == place: return second
        others.append(second)
for _ in range(4):
    first = make("first")
    first(0.04)
    place = id(first.__code__)
    del first
    replace(place)(0.5)
"""


def test_code_in_the_place_of_dead_code(any_python, run):  # noqa: F811
    """A code object that has just been looked at dies, and another comes to stand there: that is noticed within a tenth
    of a second, also when nothing else changes."""
    ran = run("--", any_python.path, "-c", REPLACED, options=["--no-agent", "-r", 100])
    first, second = ran.functions("first", "total_wall_s"), ran.functions("second", "total_wall_s")
    # 0.14 of 0.54 s at the most, on a quiet machine; on a busy one all lasts longer but the tenth.
    assert first / (first + second) < 0.33


LEAVES_A_CHILD = BURN + """
import os, signal, sys
ends = os.pipe()
pid = os.fork()
if pid == 0:
    burn(0.05)
    # Who reads them waits for everybody who might write.
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    os.write(ends[1], b"x")
    signal.pause()
os.read(ends[0], 1)
if sys.argv[1] == "takes it along":
    os.kill(pid, signal.SIGTERM)
print(pid)
"""


@pytest.mark.parametrize("way", ["takes it along", "leaves it"])
def test_what_outlives_the_command(any_python, run, way):  # noqa: F811
    """A child that runs on does not keep strobe, which says so; one that ends with its parent is no news."""
    ran = run("--", any_python.path, "-c", LEAVES_A_CHILD, way)
    pid = int(ran.result.stdout)
    said = [line for line in ran.result.stderr.splitlines() if "not sampled any more" in line]
    if way == "leaves it":
        os.kill(pid, signal.SIGKILL)
    expected = f"strobe: the command has ended; 1 process that it started ({pid}) runs on, not sampled any more"
    assert said == ([expected] if way == "leaves it" else [])
    assert {process["pid"] for process in ran.report["processes"]} >= {pid}
