"""What a program loses by having its memory looked at, under strobe and other memory profilers, each with its defaults."""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import run_slow_down
from harness import figures, interpreters, launchers, packages, turns
from harness.targets import PROGRAMS as FOLDER

TITLE = "Memory profilers: what they cost"
CHURN_ROUNDS = (400, 1200)  # under callgrind; the difference is without start-up
OBJECTS = 2_000_000
THREADS = (1, 8)
MEMORY_RUNS = 3
LIMIT_S = 300
STROBE = "strobe run"
EXACT = "strobe run --memory exact"
GOALS = {
    "median": ("slow-down, CPU and memory, median of the ten programs", 1.05, "×"),
    "worst": ("worst of the ten", 1.20, "×"),
    "instructions": ("small-object churn, instructions (callgrind)", 1.06, "×"),
    "churn": ("small-object churn, time", 1.08, "×"),
    "exact": ("the same, `--memory exact`", 1.25, "×"),
    "threads": ("8 threads that allocate against 1, ratio of slow-downs, with GIL", 1.03, "×"),
    "free": ("the same, free-threaded", 1.03, "×"),
    "object": ("memory for each live object", 0.1, " B"),
    "fixed": ("its fixed part", 8.0, " MB"),
    "capture": ("capture of a minute of churn", 2.0, " MB"),
}


class Plan:
    """How much is measured."""

    def __init__(self, context):
        self.program_rounds = 1 if context.short else 3
        self.churn_seconds, self.churn_runs = (0.4, 3) if context.short else (1.0, max(5, context.runs // 3))
        self.capture_seconds = 10 if context.short else 60
        self.peer_capture_seconds = 2 if context.short else 10
        self.strobe_rounds = 5 if context.short else 20
        # Those of which a round takes a moment only.
        self.peer_programs = ("fannkuch", "pprint", "raytrace") if context.short else tuple(run_slow_down.PROGRAMS)


def run_churn(launcher, folder, rounds, seconds, threads):
    """The program's own figures; None when it did not run."""
    result = Path(folder) / "churn.json"
    result.unlink(missing_ok=True)
    command = launcher.command(FOLDER / "churn.py", rounds, seconds, threads, result)
    status = launchers.run_command(command, launcher.environment, folder, LIMIT_S)
    if status != 0 or not result.exists():
        print(f"churn: {launcher.name} ended with {status}", file=sys.stderr, flush=True)
        return None
    return json.loads(result.read_text())


def churn_ratios(bare, tools, folder, seconds, runs, threads=1):
    """{tool: median of paired ratios of wall time}"""
    rounds = run_churn(bare, folder, 0, seconds, threads)["loops"]
    ratios = {}
    for _ in range(runs):
        base = run_churn(bare, folder, rounds, 0, threads)["wall_s"]
        for tool in list(tools):
            spent = run_churn(tool, folder, rounds, 0, threads)
            if spent is None:
                tools = [other for other in tools if other is not tool]
            else:
                ratios.setdefault(tool.name, []).append(spent["wall_s"] / base)
    return {name: statistics.median(values) for name, values in ratios.items()}


def count_instructions(interpreter, folder, rounds, environment):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", interpreter.path, FOLDER / "churn.py"]
    command = [*map(str, command), str(rounds), "0", "1", f"{folder}/churn.json"]
    answer = subprocess.run(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", answer.stderr)[1])


def instruction_ratio(context, interpreter, folder):
    """Of the rounds alone. valgrind starts no process of its own, so the agent is loaded by hand, and nobody reads what it
    tells."""
    agent = {"LD_PRELOAD": context.tool("libstrobe-agent.so"), "STROBE_AGENT_FOLDER": folder}
    agent["STROBE_AGENT_MEMORY_STRIDE_BYTES"] = str(512 << 10)
    grown = []
    for environment in ({}, agent):
        few, many = (count_instructions(interpreter, folder, rounds, environment) for rounds in CHURN_ROUNDS)
        grown.append(many - few)
    return grown[1] / grown[0]


def private_bytes(launcher, folder, objects):
    result = Path(folder) / "live.json"
    command = launcher.command(FOLDER / "live_objects.py", objects, result)
    if launchers.run_command(command, launcher.environment, folder, LIMIT_S) != 0:
        return None
    return json.loads(result.read_text())["private_bytes"]


def median_private_bytes(launcher, folder, objects):
    sizes = [private_bytes(launcher, folder, objects) for _ in range(MEMORY_RUNS)]
    return None if None in sizes else statistics.median(sizes)


def object_costs(bare, tools, folder):
    """{tool: (bytes for each object, fixed MB)}"""
    base = [median_private_bytes(bare, folder, count) for count in (0, OBJECTS)]
    costs = {}
    for tool in tools:
        sizes = [median_private_bytes(tool, folder, count) for count in (0, OBJECTS)]
        if None not in sizes:
            fixed = sizes[0] - base[0]
            costs[tool.name] = ((sizes[1] - base[1] - fixed) / OBJECTS, fixed / 1e6)
    return costs


def size_of(folder, name):
    written = {STROBE: "strobe.strobe", EXACT: "strobe.strobe", "Scalene": "scalene.json", "Fil": "fil"}
    path = Path(folder) / written.get(name, "memray.bin")
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.exists())


def capture_sizes(tools, folder, plan):
    """{tool: (MB, seconds)}"""
    sizes = {}
    for tool in tools:
        if tool.name == "tracemalloc":
            continue
        seconds = plan.capture_seconds if tool.name in (STROBE, EXACT) else plan.peer_capture_seconds
        if run_churn(tool, folder, 0, seconds, 1) is not None:
            sizes[tool.name] = (size_of(folder, tool.name) / 1e6, seconds)
    return sizes


def program_ratios(bare, tools, interpreter, folder, plan):
    """{tool: [(program, ratio), ...]}"""
    package_folder = packages.folder("programs", interpreter)
    ratios = {}
    if package_folder is None:
        return ratios
    for program in run_slow_down.PROGRAMS:
        able = tools if program in plan.peer_programs else tools[:1]
        counts = {tool.name: plan.strobe_rounds if tool.name == STROBE else plan.program_rounds for tool in able}
        words = run_slow_down.PROGRAMS[program]
        found = turns.compare(bare, able, package_folder, words, run_slow_down.TURN_S, counts)
        for name, pairs in found.items():
            if pairs:
                ratios.setdefault(name, []).append((program, run_slow_down.ratio(pairs, "wall_s")))
    return ratios


class Table:
    """Cells by goal and tool."""

    def __init__(self):
        self.cells = {}
        self.values = {}

    def put(self, goal, tool, value, more="", digits=2):
        self.values[goal, tool] = value
        self.cells[goal, tool] = f"{value:.{digits}f}{GOALS[goal][2]}{more}"

    def rows(self, names):
        for goal, (what, limit, unit) in GOALS.items():
            tool = EXACT if goal == "exact" else STROBE
            reached = "" if (goal, tool) not in self.values else ("yes" if self.values[goal, tool] <= limit else "**no**")
            first = self.cells.get((goal, tool), "")
            others = [self.cells.get((goal, name), "") for name in names]
            yield [what, f"{limit:g}{unit}", first, reached, *others]


def timed(parts, name, function, *arguments):
    start = time.monotonic()
    result = function(*arguments)
    parts[name] = parts.get(name, 0) + time.monotonic() - start
    return result


def measure(context, interpreter, free_threaded, folder, plan, parts):
    table, bare = Table(), launchers.bare(interpreter)
    tools = launchers.of_memory(context, interpreter, folder)
    for name, by_program in timed(parts, "programs", program_ratios, bare, tools, interpreter, folder, plan).items():
        worst = max(by_program, key=lambda pair: pair[1])
        few = f" (of {len(by_program)})" if len(by_program) < len(run_slow_down.PROGRAMS) else ""
        table.put("median", name, statistics.median(value for _, value in by_program), few)
        table.put("worst", name, worst[1], f" ({worst[0]})")
    help_text = subprocess.run([context.strobe, "run", "--help"], stdout=subprocess.PIPE, text=True).stdout
    churning = list(tools)
    if "--memory" in help_text:
        churning.append(launchers.strobe(context, interpreter, folder, EXACT, ("--memory", "exact")))
    ratios = timed(parts, "churn", churn_ratios, bare, churning, folder, plan.churn_seconds, plan.churn_runs)
    for name, value in ratios.items():
        table.put("exact" if name == EXACT else "churn", name, value, digits=3)
    try:
        value = timed(parts, "callgrind", instruction_ratio, context, interpreter, folder)
        table.put("instructions", STROBE, value, digits=3)
    except (OSError, subprocess.CalledProcessError) as reason:
        print(f"callgrind: {reason}", file=sys.stderr)
    for goal, one in ("threads", interpreter), ("free", free_threaded):
        if one is None:
            continue
        bare_one = launchers.bare(one)
        own = [launchers.strobe(context, one, folder), launchers.tracemalloc(one)]
        few, many = (
            timed(parts, "threads", churn_ratios, bare_one, own, folder, plan.churn_seconds / count, plan.churn_runs, count)
            for count in THREADS
        )
        for name in few:
            if name in many:
                table.put(goal, name, many[name] / few[name], f" ({many[name]:.3f}/{few[name]:.3f})", digits=3)
    for name, (each, fixed) in timed(parts, "objects", object_costs, bare, tools, folder).items():
        table.put("object", name, each, digits=3)
        table.put("fixed", name, fixed, digits=1)
    for name, (size, seconds) in timed(parts, "capture", capture_sizes, tools, folder, plan).items():
        table.put("capture", name, size, "" if seconds == 60 else f" in {seconds} s")
    return table, [tool.name for tool in tools[1:]]


def run(context):
    interpreter = interpreters.pick(version=(3, 14)) or interpreters.pick()
    free_threaded = next((one for one in interpreters.one_of_each() if one.free_threaded), None)
    plan, parts = Plan(context), {}
    with tempfile.TemporaryDirectory() as folder:
        table, names = measure(context, interpreter, free_threaded, folder, plan, parts)
    head = ["what", "goal: at most", "strobe", "reached", *names]
    took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in parts.items())
    return [
        *figures.table(head, table.rows(names)),
        "",
        f"CPython {interpreter.version_text}"
        + (f", free-threaded {free_threaded.version_text}" if free_threaded else "")
        + f". Times under the tool to times without, by turns, medians: of {plan.program_rounds} runs of "
        f"{plan.program_seconds:g} s of each program (strobe's of {plan.strobe_rounds}), of {plan.churn_runs} of the churn. Worst: which "
        "program it is stands beside it. Memory: private pages of the process that it has written to, with no object and with two million floats. "
        f"All tools with their defaults. This took: {took}.",
    ]
