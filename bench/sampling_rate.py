"""How fast a running thread can be looked at: one thread, depth 10 and 200."""

import statistics
import subprocess

from harness import figures, interpreters, samplers, targets

TITLE = "Highest sustained sampling rate, one thread that runs"
RATE_HZ = 1_000_000
SPAN_S = 1
GOAL_TIMES = 5
GOAL_FLOOR = 1.4
KINDS = (("calls", 10), ("calls", 200), ("base", 200))


def floor(context, pid):
    """(bytes, ns of a bare read of them by the cheaper call), as bench/read_floor.c measures them."""
    command = [context.measure.replace("measure", "read_floor"), str(pid)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if answer.returncode != 0:
        return 0, 0.0
    size, pread_ns, vector_ns = answer.stdout.split()
    return int(size), min(float(pread_ns), float(vector_ns))


def measure_kind(context, interpreter, kind, depth):
    """Rows of one target, and whether the goals were reached, in words."""
    runs = min(context.runs, 5)
    rows, rates, cpu_us, floors = [], {}, {}, []
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
            cpu_us[name] = statistics.median(span.cpu_s * 1e6 / span.samples for span in counted)
            share = statistics.median(span.target_share for span in counted)
            note = f"{share:.0%}" + ("" if counted[0].runs_truly else f" (too busy: 0 of {tried} spans count)")
            rows.append(["" if rows else title, name, f"{rate.text(0)}", f"{cpu_us[name]:.2f}", note, ""])
            if name == "strobe":
                floors = [floor(context, target.pid) for _ in range(3)]
    return rows, verdict(title, rates, cpu_us, floors)


def verdict(title, rates, cpu_us, floors):
    lines = []
    own, peer = rates.get("strobe"), max((rate for name, rate in rates.items() if "CPython" in name), default=None)
    if own and peer:
        reached = "reached" if own >= GOAL_TIMES * peer else "not reached"
        lines.append(f"- {title}: goal ≥ {GOAL_TIMES}× CPython's own: **{reached}** ({own / peer:.1f}×)")
    size = statistics.median(size for size, _ in floors) if floors else 0
    if size and own:
        bare_us = statistics.median(ns for _, ns in floors) / 1e3
        ratio = cpu_us["strobe"] / bare_us
        reached = "reached" if ratio <= GOAL_FLOOR else "not reached"
        lines.append(
            f"- {title}: goal ≤ {GOAL_FLOOR}× a bare read of the same {size:.0f} bytes: **{reached}** ({ratio:.2f}×: "
            f"{cpu_us['strobe']:.2f} µs, start-up, writing the capture and the report included, to {bare_us:.2f} µs)"
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
        f"Spans of {SPAN_S} s, asked for {RATE_HZ:,} samples a second (py-spy for 2,000, austin for 50,000: more they do not "
        "reach). A span counts when the target ran on a processor of its own for "
        f"{samplers.TRULY_RUNNING:.0%} of it. Start-up and writing are part of the CPU time.",
        "",
    ]
    return lines + verdicts
