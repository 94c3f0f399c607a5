"""Whether what is seen was: stacks of running programs that cannot have been, and shares of functions against those that
stopping the program gives."""

import json
import math
import subprocess
from collections import Counter
from dataclasses import dataclass, field

from harness import figures, interpreters, samplers, targets

# Found beside the interpreters' search, whose folder harness.interpreters has put on the path.
from stack_judge import SCRIPT, judge, read_source

TITLE = "Truth: one running thread, not stopped"
PROGRAMS = ("plain", "generators", "constructors", "deep")
RATE_HZ, BLOCKING_RATE_HZ = 50_000, 5_000
SAMPLES, SAMPLES_LONG = 50_000, 1_000_000
BLOCKING_SAMPLES, BLOCKING_SAMPLES_LONG = 10_000, 100_000
SPAN_S = 1
# Spans that may fail to count, for a machine that does other things too, on top of those it takes.
SPARE_SPANS = 10
GOAL_IMPOSSIBLE = {True: 0.00005, False: 0.0005}  # from 3.11 on; before
GOAL_MISPLACED, GOAL_DROPPED, GOAL_SHARE = 0.0005, 0.01, 0.015


@dataclass
class Seen:
    """Sums over spans."""

    total: int = 0
    impossible: int = 0
    misplaced: int = 0
    looks: int = 0
    dropped: int = 0
    innermost: Counter = field(default_factory=Counter)

    def add(self, verdict):
        counters = verdict.counters
        self.total += verdict.total
        self.impossible += sum(verdict.impossible.values())
        self.misplaced += sum(verdict.misplaced.values())
        self.dropped += counters["inconsistent"] + counters["errors"]
        self.looks += counters["taken"] + counters["inconsistent"] + counters["errors"]
        for name, share in verdict.shares.items():
            self.innermost[name] += round(share * verdict.total)


def sample(context, pid, rate_hz, *options):
    """(what the judge says, the target's share of its processor) of a span."""
    command = [context.tool("tests/tools/sample_stacks"), str(pid), str(rate_hz), str(SPAN_S), *options]
    text, _, _, share = samplers.run_beside(command, pid, stderr=subprocess.DEVNULL)
    return judge(read_source(), json.loads(text)), share


def gather(context, pid, rate_hz, wanted, *options):
    """So many samples of spans in which the target truly ran, or fewer. One that is stopped need not."""
    seen, spans = Seen(), 0
    while seen.total < wanted and spans < wanted / (rate_hz * SPAN_S) * 2 + SPARE_SPANS:
        verdict, share = sample(context, pid, rate_hz, *options)
        spans += 1
        if options or share >= samplers.TRULY_RUNNING:
            seen.add(verdict)
    return seen


def greatest_difference(running, stopped):
    """(of the shares of the innermost functions, twice its standard error)"""
    found = (0.0, 0.0)
    for name in running.innermost | stopped.innermost:
        one, other = running.innermost[name] / running.total, stopped.innermost[name] / stopped.total
        variance = one * (1 - one) / running.total + other * (1 - other) / stopped.total
        found = max(found, (abs(one - other), 2 * math.sqrt(variance)))
    return found


def bounds(count):
    """Between which the mean lies of a Poisson distribution that gave `count`: each with 95% confidence, by Byar's
    approximation."""
    low = count * (1 - 1 / (9 * count) - 1.645 / (3 * math.sqrt(count))) ** 3 if count > 0 else 0
    more = count + 1
    return max(0, low), more * (1 - 1 / (9 * more) + 1.645 / (3 * math.sqrt(more))) ** 3


def verdict_of(count, total, goal):
    low, high = bounds(count)
    if high <= goal * total:
        return "reached"
    return "not reached" if low > goal * total else "too few samples to tell"


def percent(count, total):
    return f"{count / max(1, total):.4%}"


class Verdicts:
    """What was said of each goal, of which target."""

    def __init__(self):
        self.targets = {}

    def add(self, goal, verdict, target):
        self.targets.setdefault(goal, {}).setdefault(verdict, []).append(target)

    def lines(self):
        for goal, by_verdict in self.targets.items():
            said = []
            for verdict, names in by_verdict.items():
                said.append(f"**{verdict}** on {len(names)}" + (f" ({', '.join(names)})" if verdict != "reached" else ""))
            yield f"- goal {goal}: " + "; ".join(said)


def measure(context, interpreter, program):
    """(running, stopped)"""
    wanted = SAMPLES_LONG if context.long else SAMPLES
    wanted_stopped = BLOCKING_SAMPLES_LONG if context.long else BLOCKING_SAMPLES
    with targets.running(interpreter.path, SCRIPT, program) as target:
        samplers.pin_target(target.pid)
        running = gather(context, target.pid, RATE_HZ, wanted)
        return running, gather(context, target.pid, BLOCKING_RATE_HZ, wanted_stopped, "--blocking")


def judge_case(name, recent, running, stopped, verdicts):
    goal = GOAL_IMPOSSIBLE[recent]
    of = "3.11 on" if recent else "3.8 to 3.10"
    verdicts.add(f"≤ {goal:.3%} impossible ({of})", verdict_of(running.impossible, running.total, goal), name)
    verdicts.add(f"≤ {GOAL_MISPLACED:.2%} misplaced", verdict_of(running.misplaced, running.total, GOAL_MISPLACED), name)
    verdicts.add(f"≤ {GOAL_DROPPED:.0%} dropped", verdict_of(running.dropped, running.looks, GOAL_DROPPED), name)
    verdicts.add("none impossible when stopped", "not reached" if stopped.impossible else "reached", name)
    if running.total and stopped.total:
        difference, error = greatest_difference(running, stopped)
        reached = "reached" if difference <= GOAL_SHARE else "not reached"
        verdicts.add(f"± {GOAL_SHARE * 100:.1f} points", reached if error < GOAL_SHARE else "too few samples to tell", name)
        return f"{difference * 100:.2f} ± {error * 100:.2f}"
    return ""


def run(context):
    rows, verdicts = [], Verdicts()
    for interpreter in interpreters.one_of_each():
        for program in PROGRAMS:
            running, stopped = measure(context, interpreter, program)
            name = f"{interpreter.minor} {program}"
            difference = judge_case(name, interpreter.at_least(3, 11), running, stopped, verdicts)
            shares = [percent(running.impossible, running.total), percent(running.misplaced, running.total)]
            rows.append([name, f"{running.total:,}", *shares, percent(running.dropped, running.looks), difference])
    head = ["target", "samples that count", "impossible", "misplaced", "dropped", "greatest difference of shares, points"]
    return [
        *figures.table(head, rows),
        "",
        f"Asked for {RATE_HZ:,} samples a second, in spans of {SPAN_S} s; a span counts when the target ran on a processor of "
        f"its own for {samplers.TRULY_RUNNING:.0%} of it. Impossible: a caller that cannot have called the callee; misplaced: a "
        "caller's line that does not call it. Shares are of innermost functions, against those with `--blocking`; ± is twice "
        "the standard error. A goal is reached when the samples show so with 95 % confidence"
        + ("." if context.long else ": most take the million of `bench/run --long truth`."),
        "",
        *verdicts.lines(),
    ]
