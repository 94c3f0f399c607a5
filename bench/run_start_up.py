"""What a profiler adds to a program that does nothing."""

import tempfile

from harness import figures, interpreters, launchers

TITLE = "Start and end: a program that does nothing"
GOAL_MS = 30


def commands_of(context, interpreter, folder):
    script = f"{folder}/nothing.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write("pass\n")
    tools = [launchers.bare(interpreter), *launchers.of_interpreter(context, interpreter, folder)]
    return {tool.name: ["env", *(f"{k}={v}" for k, v in tool.extra.items()), *tool.command(script)] for tool in tools}


def measure(context, interpreter):
    """{tool: [Cost, ...]}, by turns; those that do not run are left out."""
    with tempfile.TemporaryDirectory() as folder:
        commands = commands_of(context, interpreter, folder)
        peers = set(commands) - {"bare", launchers.ALL, launchers.CPU_ONLY}
        # Once before, for what is read for the first time.
        able = figures.measure_by_turns(context.measure, commands, 1, peers)
        return figures.measure_by_turns(context.measure, {name: commands[name] for name in able}, context.runs, peers)


def added_ms(costs, bare, figure):
    return figures.Spread.of((getattr(c, figure) - getattr(b, figure)) * 1000 for c, b in zip(costs, bare, strict=True))


def run(context):
    rows, verdicts = [], []
    for interpreter in filter(None, (interpreters.pick(version=version) for version in ((3, 13), (3, 15)))):
        costs = measure(context, interpreter)
        bare = costs["bare"]
        for name, of in costs.items():
            wall = figures.Spread.of(cost.wall_s * 1000 for cost in of)
            row = [interpreter.version_text, name, wall.text(1), f"{figures.Spread.of(c.cpu_s * 1000 for c in of).median:.1f}"]
            added = ["", ""] if name == "bare" else [added_ms(of, bare, f).text(1) for f in ("wall_s", "cpu_s")]
            rows.append([*row, *added, f"{figures.Spread.of(c.peak_bytes / 2**20 for c in of).median:.0f}"])
        median = added_ms(costs[launchers.ALL], bare, "wall_s").median
        verdict = "reached" if median <= GOAL_MS else "not reached"
        verdicts.append(f"- {interpreter.version_text}: goal ≤ {GOAL_MS} ms: **{verdict}** ({median:.1f} ms)")
    head = ["Python", "tool", "wall ms: median (least–greatest)", "CPU ms", "added wall ms", "added CPU ms", "peak MiB"]
    return [
        *figures.table(head, rows),
        "",
        f"{context.runs} runs of each, by turns; what is added is the median over pairs of runs. Reports and captures are "
        "written; CPU time is of all processes of a command, peak memory of the largest of them.",
        "",
        *verdicts,
    ]
