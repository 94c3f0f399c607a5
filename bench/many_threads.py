"""A hundred threads, looked at a hundred times a second."""

from harness import figures, interpreters, progress

TITLE = "100 threads × 20 frames at 100 Hz"
RATE_HZ = 100
THREADS, DEPTH = 100, 20
PAIRS, PAIRS_LONG = 100, 1000
GOAL_SHARE, GOAL_SLOW_DOWN = 0.05, 0.01
# (working, waiting): a server whose workers mostly wait, and threads that all want the GIL.
KINDS = ((1, THREADS - 1), (THREADS, 0))


def measure_kind(context, interpreter, working, waiting):
    with progress.working(interpreter.path, DEPTH, working, waiting) as target:
        count = PAIRS_LONG if context.long else PAIRS
        return progress.pairs(context, target, RATE_HZ, count, "--idle")


def run(context):
    rows, verdicts = [], []
    interpreter = interpreters.pick(version=(3, 15)) or interpreters.pick()
    for working, waiting in KINDS:
        title = f"{interpreter.version_text}, {working} working, {waiting} waiting"
        measured = measure_kind(context, interpreter, working, waiting)
        counting = [pair for pair in measured if pair.runs_truly]
        if len(counting) < 6:
            rows.append([title, f"{len(counting)} of {len(measured)}", "the machine is too busy", ""])
            continue
        share = figures.Spread.of(pair.strobe_share for pair in counting)
        slow_down = progress.estimate(pair.slow_down for pair in counting)
        percent = share.scaled(100).text() + " %"
        rows.append([title, f"{len(counting)} of {len(measured)}", percent, slow_down.text()])
        verdicts += [
            f"- {title}: goal < {GOAL_SHARE:.0%} of a processor: "
            f"**{'reached' if share.median < GOAL_SHARE else 'not reached'}**",
            f"- {title}: goal < {GOAL_SLOW_DOWN:.0%} slower: **{slow_down.verdict(GOAL_SLOW_DOWN)}**",
        ]
    head = ["target", "pairs that count", "strobe's share of a processor", "slow-down: median (95 % confidence)"]
    return [
        *figures.table(head, rows),
        "",
        "All threads are sampled, whether they run or wait (`--idle`). Spans and pairs as for the slow-down at 1 kHz.",
        "",
        *verdicts,
    ]
