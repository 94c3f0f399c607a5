"""What a program loses by being run under strobe and other profilers, each with its defaults."""

import tempfile

from harness import figures, interpreters, launchers, packages, turns

TITLE = "Slow-down of ten programs, started under a profiler"
# {tool: (median of the ten, worst of the ten)}: CPU alone; CPU, memory and copies.
GOALS = {launchers.CPU_ONLY: (1.01, None), launchers.ALL: (1.05, 1.20)}
TURN_S = 0.2
TURNS, PEER_TURNS = 5, 3
# Processes of one program differ by one or two hundredths, all their lives: where things lie in memory is another each time.
PROCESSES, PROCESSES_SHORT, PROCESSES_LONG = 8, 2, 32
# Rounds of some of the programs take seconds.
ENOUGH_SHORT_S = 5
# How many times slower another's tool may be before it is given up.
PATIENCE = 8
# Those of the paper on Scalene (OSDI'23), as pyperformance names them.
PROGRAMS = {
    "mdp": ("mdp", ""),
    "async_tree none": ("async_tree", "none"),
    "async_tree io": ("async_tree", "io"),
    "async_tree cpu_io_mixed": ("async_tree", "cpu_io_mixed"),
    "async_tree memoization": ("async_tree", "memoization"),
    "fannkuch": ("fannkuch", ""),
    "pprint": ("pprint", ""),
    "raytrace": ("raytrace", ""),
    "sympy": ("sympy", ""),
    "docutils": ("docutils", ""),
}


def own_processes(context):
    return PROCESSES_LONG if context.long else PROCESSES_SHORT if context.short else PROCESSES


def peer_turns(context):
    return 1 if context.short else PEER_TURNS


def effort_of(context, tools):
    counts = {tool.name: TURNS if tool.name in GOALS else peer_turns(context) for tool in tools}
    hurried = {tool.name: PATIENCE for tool in tools if tool.name not in GOALS}
    return turns.Effort(TURN_S, counts, ENOUGH_SHORT_S if context.short else float("inf"), hurried)


def pairs_of(context, bare, tools, package_folder, program):
    """{tool: pairs of Turns}: of the peers those of one process, of strobe those of several, one after the other."""
    found = {}
    for index in range(own_processes(context)):
        due = [tool for tool in tools if index == 0 or tool.name in GOALS]
        for name, pairs in turns.compare(bare, due, package_folder, program, effort_of(context, due)).items():
            found.setdefault(name, []).extend(pairs)
    return found


def measure(context, interpreter):
    """{tool: {program: (wall, cpu) ratios}}"""
    package_folder = packages.folder("programs", interpreter)
    ratios = {}
    with tempfile.TemporaryDirectory() as folder:
        bare, tools = launchers.bare(interpreter), launchers.of_interpreter(context, interpreter, folder)
        for title, program in PROGRAMS.items():
            for name, pairs in pairs_of(context, bare, tools, package_folder, program).items():
                if pairs:
                    ratios.setdefault(name, {})[title] = turns.ratio(pairs, "wall_s"), turns.ratio(pairs, "cpu_s")
    return ratios


def median_of(by_program, index):
    return turns.median(values[index] for values in by_program.values())


def rows_of(interpreter, ratios):
    for name, by_program in ratios.items():
        walls = [turns.text(by_program[p][0], 3) if p in by_program else "" for p in PROGRAMS]
        wall, cpu = (turns.text(median_of(by_program, index), 3) for index in (0, 1))
        yield [interpreter.version_text, name, f"**{wall}**", cpu, *walls]


def reached(value, goal):
    return "**reached**" if value <= goal else "**not reached**"


def verdicts_of(interpreter, ratios):
    for name, (median_goal, worst_goal) in GOALS.items():
        by_program = ratios.get(name)
        if not by_program:
            continue
        wall, cpu = (median_of(by_program, index) for index in (0, 1))
        verdict = f"- {interpreter.version_text}, {name}: goal of the median ≤ {median_goal:.2f}×: {reached(wall, median_goal)}"
        yield f"{verdict} ({wall:.3f}×; by CPU time {cpu:.3f}×)"
        if worst_goal:
            worst = max(by_program, key=lambda program: by_program[program][0])
            verdict = f"- {interpreter.version_text}, {name}: goal of the worst ≤ {worst_goal:.2f}×"
            yield f"{verdict}: {reached(by_program[worst][0], worst_goal)} ({by_program[worst][0]:.3f}×, {worst})"


def run(context):
    rows, verdicts = [], []
    for interpreter in filter(None, (interpreters.pick(version=version) for version in ((3, 13), (3, 15)))):
        ratios = measure(context, interpreter)
        rows.extend(rows_of(interpreter, ratios))
        verdicts.extend(verdicts_of(interpreter, ratios))
    head = ["Python", "tool", "**median**", "its CPU time", *PROGRAMS]
    return [
        *figures.table(head, rows),
        "",
        "Time for a round under the tool to that without. All tools, and none, run the program at once, and take turns: only one "
        f"gets on, for {TURN_S:g} s or one round, then the next; a ratio is the median of those of neighbouring turns, for strobe "
        f"{TURNS} {'or fewer ' if context.short else ''}of each of {own_processes(context)} processes (and as many bare ones: two "
        f"processes of one program differ by one or two hundredths), for the others {peer_turns(context)} of one; `>`: given up, "
        f"at {PATIENCE} times the bare turn's time. CPU time is the program's own, of all threads. All tools with their default "
        "rates (strobe and profiling.sampling 1 kHz, Scalene and py-spy 100 Hz)."
        + ("" if context.long else f" `bench/run --long run_slow_down` takes {PROCESSES_LONG} processes."),
        "",
        *verdicts,
    ]
