"""How fast a running thread can be looked at: one thread, depth 10 and 200."""

import os
import statistics
import subprocess

from harness import figures, interpreters, samplers, targets

TITLE = "Highest sustained sampling rate, one thread that runs"
# More than any of them reaches: of what one is asked for and can do, it waits for the deadlines.
RATE_HZ = 10_000_000
SPAN_S = 1
GOAL_TIMES = 5
GOAL_FLOOR = 1.4
FLOOR_ROUNDS = 5
KINDS = (("calls", 10), ("calls", 200), ("base", 200))


def run_tool(context, name, *arguments):
    """The numbers that one of our tools prints, run beside the target; None when it fails."""
    command = [context.tool(f"bench/{name}"), *map(str, arguments)]
    answer = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, samplers.cores()[1])
    )
    return [float(word) for word in answer.stdout.split()] if answer.returncode == 0 else None


def steady_costs(context, pid):
    """(bytes, ns of a bare read of them by the cheaper call, ns of a steady sample), by turns; [] when that fails."""
    found = []
    for _ in range(FLOOR_ROUNDS):
        floor, steady = run_tool(context, "read_floor", pid), run_tool(context, "steady_sample", pid, SPAN_S)
        if floor and steady:
            found.append((floor[0], min(floor[1:]), steady[1]))
    return found


def measure_kind(context, interpreter, kind, depth):
    """Rows of one target, and whether the goals were reached, in words."""
    runs = min(context.runs, 5)
    rows, rates = [], {}
    title = f"{interpreter.version_text}, {kind}, depth {depth}"
    with targets.running(interpreter.path, "alternating.py", kind, depth) as target:
        samplers.pin_target(target.pid)
        for name, tool in samplers.of_target(context, interpreter, SPAN_S).items():
            counted, tried = samplers.spans(tool, target.pid, RATE_HZ, runs, runs + 2)
            if not counted:
                rows.append(["" if rows else title, name, "sees nothing", "", "", ""])
                continue
            rate = figures.Spread.of(span.samples / max(SPAN_S, span.wall_s - 1) for span in counted)
            rates[name] = rate.median
            cpu_us = statistics.median(span.cpu_s * 1e6 / span.samples for span in counted)
            share = statistics.median(span.target_share for span in counted)
            note = f"{share:.0%}" + ("" if counted[0].runs_truly else f" (too busy: 0 of {tried} spans count)")
            rows.append(["" if rows else title, name, f"{rate.text(0)}", f"{cpu_us:.2f}", note, ""])
        costs = steady_costs(context, target.pid)
    return rows, verdict(title, rates, costs)


def verdict(title, rates, costs):
    lines = []
    own, peer = rates.get("strobe"), max((rate for name, rate in rates.items() if "CPython" in name), default=None)
    if own and peer:
        reached = "reached" if own >= GOAL_TIMES * peer else "not reached"
        lines.append(f"- {title}: goal ≥ {GOAL_TIMES}× CPython's own: **{reached}** ({own / peer:.1f}×)")
    if costs:
        size, bare_ns, steady_ns = (statistics.median(cost[index] for cost in costs) for index in range(3))
        ratio = statistics.median(cost[2] / cost[1] for cost in costs)
        reached = "reached" if ratio <= GOAL_FLOOR else "not reached"
        lines.append(
            f"- {title}: goal for a steady sample ≤ {GOAL_FLOOR}× a bare read of the same {size:.0f} bytes: **{reached}** "
            f"({ratio:.2f}×: {steady_ns / 1e3:.2f} µs to {bare_ns / 1e3:.2f} µs)"
        )
    return lines


def run(context):
    interpreter = interpreters.pick(version=(3, 15)) or interpreters.pick()
    rows, verdicts = [], []
    for kind, depth in KINDS:
        own_rows, lines = measure_kind(context, interpreter, kind, depth)
        rows += own_rows
        verdicts += lines
    head = ["target", "tool", "samples/s: median (least–greatest)", "CPU µs a sample", "target's share of its processor", ""]
    lines = figures.table(head[:-1], [row[:-1] for row in rows])
    lines += [
        "",
        f"Spans of {SPAN_S} s, asked for {RATE_HZ:,} samples a second (CPython's for 1,000,000, py-spy for 2,000, austin for "
        "50,000: more they do not reach). A span counts when the target ran on a processor of its own for "
        f"{samplers.TRULY_RUNNING:.0%} of it. Start-up and writing are part of the CPU time in the table, but not of that of a "
        "steady sample (`bench/steady_sample.c`), which is taken by turns with the bare read (`bench/read_floor.c`).",
        "",
    ]
    return lines + verdicts
