"""What a program loses by having its memory looked at, under strobe and other memory profilers, each with its defaults."""

import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import run_slow_down
from harness import figures, interpreters, launchers, packages, peers, turns
from harness.targets import PROGRAMS as FOLDER

TITLE = "Memory profilers: what they cost"
OBJECTS = 2_000_000
THREADS = (1, 8)
STROBE = "strobe run"
EXACT = "strobe run --memory exact"
DID_NOT_RUN = "did not run"
TOO_SLOW = "too slow"


@dataclass(frozen=True)
class Goal:
    what: str
    limit: float
    unit: str
    digits: int
    exact_limit: float = None  # of `--memory exact`; None: there is no goal for it

    def limit_of(self, tool):
        return self.exact_limit if tool == EXACT else self.limit

    def value_text(self, value):
        return f"{value:.{self.digits}f}{self.unit}"

    def limits_text(self):
        exact = f", exact {self.exact_limit:g}{self.unit}" if self.exact_limit is not None else ""
        return f"{self.limit:g}{self.unit}{exact}"


GOALS = {
    "median": Goal("slow-down, CPU and memory, median of the ten programs", 1.05, "×", 2),
    "worst": Goal("worst of the ten", 1.20, "×", 2),
    "instructions": Goal("small-object churn, instructions (callgrind)", 1.06, "×", 3, 1.25),
    "churn": Goal("small-object churn, time", 1.08, "×", 3, 1.25),
    "threads": Goal("8 threads that allocate against 1, ratio of slow-downs, with GIL", 1.03, "×", 3),
    "free": Goal("the same, free-threaded", 1.03, "×", 3),
    "object": Goal("memory for each live object", 0.1, " B", 3),
    "fixed": Goal("its fixed part", 8.0, " MB", 1),
    "capture": Goal("capture of a minute of churn", 2.0, " MB", 2),
}


# Those with short rounds first: if there is no time for all of another's tool, they are what there is.
PROGRAMS = (
    "raytrace",
    "fannkuch",
    "async_tree memoization",
    "async_tree cpu_io_mixed",
    "async_tree none",
    "sympy",
    "async_tree io",
    "mdp",
    "pprint",
    "docutils",
)
assert set(PROGRAMS) == set(run_slow_down.PROGRAMS)


class Plan:
    """How much is measured. What is slow of others' is run once, and not waited for without end."""

    def __init__(self, context):
        self.program_rounds = 7 if context.short else 20
        self.program_enough_s = 4 if context.short else 20
        self.churn_seconds, self.churn_runs = (0.5, 7) if context.short else (1.0, max(7, context.runs // 3))
        # Processes of a free-threaded build differ by a tenth and more for as long as they live: there are several.
        self.thread_turn_s, self.thread_turns, self.thread_launches = (0.2, 9, 3) if context.short else (0.2, 10, 12)
        self.rounds_counted = (50, 150) if context.short else (400, 1200)  # the difference is without start-up
        self.memory_runs = 3
        self.capture_seconds, self.exact_capture_seconds = (60, 10) if context.short else (60, 60)
        self.peer_rounds = 1 if context.short else 3
        self.peer_runs = 1 if context.short else 5
        self.peer_memory_runs = 1 if context.short else 3
        self.peer_capture_seconds = 2 if context.short else 10
        self.peer_programs_s = 160 if context.short else 400  # no further program is begun then
        self.limit_s = 150 if context.short else 300
        self.peer_limit_s = 15 if context.short else 60


class Table:
    """Cells by goal and tool. A tool that was to be measured and was not says so."""

    def __init__(self):
        self.cells = {}
        self.values = {}

    def expect(self, goal, tools):
        for tool in tools:
            self.cells.setdefault((goal, tool.name), DID_NOT_RUN)

    def explain(self, names):
        """Those tools were given up."""
        for (goal, name), cell in self.cells.items():
            if cell == DID_NOT_RUN and name in names:
                self.cells[goal, name] = TOO_SLOW

    def put(self, goal, tool, value, more=""):
        self.values[goal, tool] = value
        least = "> " if isinstance(value, turns.AtLeast) else ""
        self.cells[goal, tool] = least + GOALS[goal].value_text(value) + more

    def rows(self, names):
        for key, goal in GOALS.items():
            yield [goal.what, goal.limits_text(), *(self.cells.get((key, name), "") for name in names)]

    def verdicts(self):
        for key, goal in GOALS.items():
            for tool in (STROBE, EXACT):
                limit, value = goal.limit_of(tool), self.values.get((key, tool))
                if limit is None:
                    continue
                verdict = "not measured" if value is None else "reached" if value <= limit else "not reached"
                cell = f" ({self.cells[key, tool]})" if value is not None else ""
                exactly = ", `--memory exact`" if tool == EXACT else ""
                yield f"- {goal.what}{exactly}: goal ≤ {limit:g}{goal.unit}: **{verdict}**{cell}"


@dataclass
class Bench:
    context: object
    interpreter: object
    folder: str
    plan: Plan
    table: Table
    given_up: set = dataclasses.field(default_factory=set)  # names of tools, in this part

    def ours(self, interpreter=None):
        python = interpreter or self.interpreter
        exact = launchers.strobe(self.context, python, self.folder, EXACT, ("--memory", "exact"), "exact")
        return [launchers.strobe(self.context, python, self.folder), exact]

    def peers(self):
        """[(interpreter, [launcher, ...]), ...]: Fil has no wheels for the newest ones, and wants the system's libc."""
        found = [(self.interpreter, launchers.memory_peers(self.interpreter, self.folder))]
        if launchers.fil(self.interpreter, self.folder) is None:
            older = interpreters.pick(version=(3, 13), shared=True) or interpreters.pick(version=(3, 13))
            fil = launchers.fil(older, self.folder) if older is not None else None
            if fil is not None:
                found.append((older, [dataclasses.replace(fil, name=f"Fil ({older.minor})")]))
        return found

    def groups(self):
        """All tools, ours first: [(bare, tools, whether they are ours), ...]"""
        yield launchers.bare(self.interpreter), self.ours(), True
        for interpreter, tools in self.peers():
            yield launchers.bare(interpreter), tools, False

    def limit_s(self, launcher):
        """Ours are waited for."""
        own = launcher.name in (STROBE, EXACT, "bare")
        return self.plan.limit_s if own else self.plan.peer_limit_s

    def run(self, launcher, program, result, *arguments):
        """What a program of bench/programs/ wrote to the file `result`; None when it did not run."""
        path = Path(self.folder) / result
        path.unlink(missing_ok=True)
        command = launcher.command(FOLDER / program, *arguments, path)
        start = time.monotonic()
        status = launchers.run_command(command, launcher.environment, self.folder, self.limit_s(launcher))
        try:
            written = json.loads(path.read_text()) if status == 0 else None
        except (OSError, ValueError):
            written = None
        if written is None:
            if status is None:
                self.given_up.add(launcher.name)
            ended = f"ended with {status}" if status is not None else f"was given up after {time.monotonic() - start:.0f} s"
            print(f"{program}: {launcher.name} {ended}", file=sys.stderr, flush=True)
        return written

    def churn(self, launcher, rounds, seconds=0.0):
        return self.run(launcher, "churn.py", "churn.json", rounds, seconds)

    def rounds_of(self, bare):
        calibrated = self.churn(bare, 0, self.plan.churn_seconds)
        return max(1, calibrated["loops"]) if calibrated is not None else None


# --- The ten programs ---


def program_ratios(bench, interpreter, tools, is_ours):
    """{tool: [(program, ratio), ...]}"""
    plan, ratios = bench.plan, {}
    package_folder = packages.folder("programs", interpreter)
    counts = {tool.name: plan.program_rounds if is_ours else plan.peer_rounds for tool in tools}
    hurried = {} if is_ours else {tool.name: run_slow_down.PATIENCE for tool in tools}
    effort = turns.Effort(run_slow_down.TURN_S, counts, plan.program_enough_s, hurried)
    end_s = time.monotonic() + plan.peer_programs_s
    for program in PROGRAMS if package_folder is not None else ():
        if not is_ours and time.monotonic() > end_s:
            break
        words = run_slow_down.PROGRAMS[program]
        for name, pairs in turns.compare(launchers.bare(interpreter), tools, package_folder, words, effort).items():
            if pairs:
                ratios.setdefault(name, []).append((program, turns.ratio(pairs, "wall_s")))
    return ratios


def measure_programs(bench):
    groups = [(bench.interpreter, bench.ours()[:1], True), *((*group, False) for group in bench.peers())]
    for interpreter, tools, is_ours in groups:
        for goal in ("median", "worst"):
            bench.table.expect(goal, tools)
        for name, by_program in program_ratios(bench, interpreter, tools, is_ours).items():
            values = [value for _, value in by_program]
            program, worst = max(by_program, key=lambda pair: pair[1])
            few = f" (of {len(by_program)})" if len(by_program) < len(PROGRAMS) else ""
            bench.table.put("median", name, turns.median(values), few)
            is_least = any(isinstance(value, turns.AtLeast) for value in values)
            bench.table.put("worst", name, turns.AtLeast(worst) if is_least else worst, f" ({program})")


# --- Small objects that come and go ---


def measure_churn(bench):
    """Medians of paired ratios of wall time."""
    plan = bench.plan
    for bare, tools, is_ours in bench.groups():
        bench.table.expect("churn", tools)
        rounds = bench.rounds_of(bare)
        ratios, running = {}, list(tools) if rounds is not None else []
        for _ in range(plan.churn_runs if is_ours else plan.peer_runs):
            base = bench.churn(bare, rounds) if running else None
            for tool in list(running) if base is not None else []:
                spent = bench.churn(tool, rounds)
                if spent is None:
                    running.remove(tool)
                    is_slow = tool.name in bench.given_up
                    found = turns.AtLeast(bench.limit_s(tool) / base["wall_s"]) if is_slow else None
                else:
                    found = spent["wall_s"] / base["wall_s"]
                if found is not None:
                    ratios.setdefault(tool.name, []).append(found)
        for name, values in ratios.items():
            bench.table.put("churn", name, turns.median(values))


def count_instructions(bench, rounds, environment):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", bench.interpreter.path]
    command += [*map(str, (FOLDER / "churn.py", rounds, 0)), f"{bench.folder}/churn.json"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", **environment}
    answer = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", answer.stderr)[1])


def measure_instructions(bench):
    """Of the rounds alone. valgrind starts no process of its own, so the agent is loaded by hand, and nobody reads what it
    tells."""
    agent = {"LD_PRELOAD": bench.context.tool("libstrobe-agent.so"), "STROBE_AGENT_FOLDER": bench.folder}
    strides = {STROBE: 512 << 10, EXACT: 1}
    bench.table.expect("instructions", bench.ours())
    grown = {}
    for name in (None, *strides):
        environment = {**agent, "STROBE_AGENT_MEMORY_STRIDE_BYTES": str(strides[name])} if name else {}
        try:
            few, many = (count_instructions(bench, rounds, environment) for rounds in bench.plan.rounds_counted)
        except (OSError, TypeError, subprocess.CalledProcessError) as reason:
            print(f"callgrind, {name or 'bare'}: {reason}", file=sys.stderr, flush=True)
            continue
        grown[name] = many - few
        if name and grown.get(None, 0) > 0:
            bench.table.put("instructions", name, grown[name] / grown[None])


# --- Several threads ---


def thread_slow_downs(bench, bare, tools, count):
    """{tool: [by wall time, by the program's own CPU time]}"""
    plan = bench.plan
    effort = turns.Effort(plan.thread_turn_s, {tool.name: plan.thread_turns for tool in tools})
    ratios = {tool.name: [] for tool in tools}
    for _ in range(plan.thread_launches):
        for name, pairs in turns.compare(bare, tools, "", ("churn", str(count)), effort).items():
            if pairs:
                ratios[name].append([turns.ratio(pairs, figure) for figure in ("wall_s", "cpu_s")])
    return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in ratios.items() if rows}


def measure_threads(bench, goal, interpreter):
    bare, tools = launchers.bare(interpreter), [*bench.ours(interpreter), launchers.tracemalloc(interpreter)]
    bench.table.expect(goal, tools)
    one, many = (thread_slow_downs(bench, bare, tools, count) for count in THREADS)
    for name in one.keys() & many.keys():
        wall, cpu = (many[name][index] / one[name][index] for index in (0, 1))
        bench.table.put(goal, name, wall, f" ({many[name][0]:.3f}/{one[name][0]:.3f}; CPU time {cpu:.3f}×)")


# --- Memory ---


def median_dirty_bytes(bench, launcher, objects, runs):
    sizes = []
    for _ in range(runs):
        told = bench.run(launcher, "live_objects.py", "live.json", objects)
        if told is None:
            return None
        sizes.append(told["dirty_bytes"])
    return statistics.median(sizes)


def measure_objects(bench):
    """What a second half of the objects adds is for them; the rest, rings and tables that even a few fill included, is fixed."""
    for bare, tools, is_ours in bench.groups():
        runs = bench.plan.memory_runs if is_ours else bench.plan.peer_memory_runs
        for goal in ("object", "fixed"):
            bench.table.expect(goal, tools)
        counts = (OBJECTS, 2 * OBJECTS)
        base = [median_dirty_bytes(bench, bare, count, bench.plan.memory_runs) for count in counts]
        for tool in tools if None not in base else []:
            sizes = [median_dirty_bytes(bench, tool, count, runs) for count in counts]
            if None not in sizes:
                once, twice = (size - bare_size for size, bare_size in zip(sizes, base))
                bench.table.put("object", tool.name, (twice - once) / OBJECTS)
                bench.table.put("fixed", tool.name, (2 * once - twice) / 1e6)


def size_of(folder, name):
    """None: there is nothing."""
    written = {STROBE: "strobe.strobe", EXACT: "exact.strobe", "Scalene": "scalene.json", **launchers.MEMRAY_FILES}
    path = Path(folder) / written.get(name, "fil")
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.exists()) or None


def measure_captures(bench):
    plan = bench.plan
    for _, tools, is_ours in bench.groups():
        writing = [tool for tool in tools if tool.name != "tracemalloc"]
        bench.table.expect("capture", writing)
        for tool in writing:
            seconds = plan.exact_capture_seconds if tool.name == EXACT else plan.capture_seconds
            seconds = seconds if is_ours else plan.peer_capture_seconds
            size = size_of(bench.folder, tool.name) if bench.churn(tool, 0, seconds) is not None else None
            if size is not None:
                bench.table.put("capture", tool.name, size / 1e6, "" if seconds == 60 else f" in {seconds} s")


# --- All ---


def measure_beside_each_other(bench):
    """Neither is a time: callgrind counts, and a capture has its size."""
    with tempfile.TemporaryDirectory() as folder:
        counting = threading.Thread(target=measure_instructions, args=[dataclasses.replace(bench, folder=folder)])
        counting.start()
        measure_captures(bench)
        counting.join()


def measure_one_by_one(bench):
    measure_instructions(bench)
    measure_captures(bench)


def measure_parts(bench, free_threaded):
    """Seconds that each part took."""
    parts = {
        "programs": measure_programs,
        "churn": measure_churn,
        "callgrind, capture": measure_beside_each_other if bench.context.short else measure_one_by_one,
        "threads": lambda bench: measure_threads(bench, "threads", bench.interpreter),
        "threads without GIL": lambda bench: free_threaded and measure_threads(bench, "free", free_threaded),
        "objects": measure_objects,
    }
    took = {}
    for name, measure in parts.items():
        start = time.monotonic()
        bench.given_up.clear()
        measure(bench)
        bench.table.explain(bench.given_up)
        took[name] = time.monotonic() - start
        print(f"{name}: {took[name]:.0f} s", file=sys.stderr, flush=True)
    return took


def legend(bench, free_threaded, took):
    plan = bench.plan
    versions = [peers.pinned(name) for name in ("scalene", "memray", "fil")]
    free = f", free-threaded {free_threaded.version_text}" if free_threaded else ""
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items())
    return (
        f"CPython {bench.interpreter.version_text}{free}; {', '.join(versions)}. All tools with their defaults. Times under the tool "
        f"to times without, by turns, medians: of {plan.program_rounds} turns of {run_slow_down.TURN_S:g} s or one round of each "
        f"program, or as many as {plan.program_enough_s} s take (others' of {plan.peer_rounds}), of {plan.churn_runs} of "
        f"{plan.churn_seconds:g} s of the churn (others' of {plan.peer_runs}), of {plan.thread_turns} of {plan.thread_turn_s:g} s "
        f"of each of {plan.thread_launches} processes with each number of threads. Where there are fewer than nine processors, eight "
        "threads have to share them with strobe, which the program's own CPU time does not show. Worst: which program it is "
        "stands beside it. `>`: others are given up "
        f"when they are {run_slow_down.PATIENCE} times slower in a program, or "
        f"take {plan.peer_limit_s} s. Memory: what the process itself has written to, with {OBJECTS:,} floats and with twice "
        "as many: what the second half adds, and what is there besides. "
        f"This took: {spent}."
    )


def run(context):
    interpreter = interpreters.pick(version=(3, 14)) or interpreters.pick()
    free_threaded = next((one for one in interpreters.one_of_each() if one.free_threaded), None)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(context, interpreter, folder, Plan(context), Table())
        took = measure_parts(bench, free_threaded)
        names = [tool.name for _, tools, _ in bench.groups() for tool in tools]
    head = ["what", "goal: at most", *names]
    return [
        *figures.table(head, bench.table.rows(names)),
        "",
        legend(bench, free_threaded, took),
        "",
        *bench.table.verdicts(),
    ]
