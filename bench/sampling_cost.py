"""What a sample costs at a rate that everybody can keep up with, or nearly."""

import statistics

from harness import figures, interpreters, samplers, targets

TITLE = "CPU time of a sample, one thread at 10 kHz, depth 20"
RATE_HZ = 10_000
DEPTH = 20
SHORT_S, LONG_S = 1, 4
GOALS = {"CPython": 1 / 4, "py-spy": 1 / 20}


def cost_of_pair(tool, pid):
    """(CPU µs a sample without what start and end take, the same with, samples a second, the target's least share of its
    processor) by a short span and a longer one; None when it sees nothing."""
    short, long = tool(pid, RATE_HZ, SHORT_S), tool(pid, RATE_HZ, LONG_S)
    if long.samples <= short.samples or short.samples == 0:
        return None
    steady = (long.cpu_s - short.cpu_s) / (long.samples - short.samples)
    whole = long.cpu_s / long.samples
    share = min(short.target_share, long.target_share)
    return steady * 1e6, whole * 1e6, long.samples / LONG_S, share


def run(context):
    runs = min(context.runs, 5)
    interpreter = interpreters.pick(version=(3, 15)) or interpreters.pick()
    costs = {}
    with targets.running(interpreter.path, "alternating.py", "calls", DEPTH) as target:
        samplers.pin_target(target.pid)
        tools = samplers.of_target(context, interpreter, LONG_S)
        for _ in range(runs):
            for name, tool in tools.items():
                costs.setdefault(name, []).append(cost_of_pair(tool, target.pid))
    rows, steady = [], {}
    for name, own in costs.items():
        found = [cost for cost in own if cost is not None]
        if not found:
            rows.append([interpreter.version_text, name, "sees nothing", "", "", ""])
            continue
        spread = figures.Spread.of(cost[0] for cost in found)
        steady[name] = spread.median
        whole, rate, share = (statistics.median(cost[index] for cost in found) for index in (1, 2, 3))
        rows.append([interpreter.version_text, name, spread.text(), f"{whole:.2f}", f"{rate:.0f}", f"{share:.0%}"])
    head = ["target", "tool", "CPU µs a sample: median (least–greatest)", "… with start and end", "samples/s", "target's share"]
    return [
        *figures.table(head, rows),
        "",
        f"What a span of {LONG_S} s costs more than one of {SHORT_S} s, by the samples that it has more; {runs} pairs of each, by "
        "turns. py-spy is asked for 2,000 samples a second and austin for as many as the others: what they reach is shown. "
        "The target's share is of its processor, which py-spy takes by stopping it.",
        "",
        *verdicts(steady),
    ]


def verdicts(steady):
    lines = []
    for prefix, goal in GOALS.items():
        peer = next((cost for name, cost in steady.items() if name.startswith(prefix)), None)
        if peer is None or "strobe" not in steady:
            continue
        ratio = steady["strobe"] / peer
        reached = "reached" if ratio <= goal else "not reached"
        lines.append(f"- goal ≤ {goal:.2f} of {prefix}'s: **{reached}** ({ratio:.3f})")
    return lines
