"""What a target loses by being looked at 1,000 times a second."""

from harness import figures, interpreters, progress

TITLE = "Slow-down of the target, sampled at 1 kHz"
RATE_HZ = 1000
DEPTH = 20
PAIRS, PAIRS_LONG = 150, 1500
GOAL = 0.005


def measure(context, interpreter):
    with progress.working(interpreter.path, DEPTH, 1, 0) as target:
        return progress.pairs(context, target, RATE_HZ, PAIRS_LONG if context.long else PAIRS)


def run(context):
    rows, verdicts = [], []
    versions = [(3, 15), (3, 13), (3, 10)]
    for interpreter in filter(None, (interpreters.pick(version=version) for version in versions)):
        measured = measure(context, interpreter)
        counting = [pair for pair in measured if pair.runs_truly]
        title = interpreter.version_text
        if len(counting) < 6:
            rows.append([title, f"{len(counting)} of {len(measured)}", "the machine is too busy", ""])
            continue
        slow_down = progress.estimate(pair.slow_down for pair in counting)
        share = figures.Spread.of(pair.strobe_share * 100 for pair in counting)
        rows.append([title, f"{len(counting)} of {len(measured)}", slow_down.text(), share.text() + " %"])
        verdicts.append(f"- {title}: goal < {GOAL:.1%}: **{slow_down.verdict(GOAL)}**")
    head = ["target", "pairs that count", "slow-down: median (95 % confidence)", "strobe's share of a processor"]
    return [
        *figures.table(head, rows),
        "",
        f"One thread that computes under {DEPTH} frames. Spans of {progress.SPAN_S} s with strobe and with a strobe that a signal "
        "has stopped, in pairs next to each other, by turns with either first; the target says itself how far it gets. A pair "
        "counts when the target had its processor for itself.",
        "",
        *verdicts,
    ]
