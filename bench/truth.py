"""Whether what is seen was: stacks of running programs that cannot have been, and shares of functions against those that
stopping the program gives."""

import json
import math
import re
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

from harness import figures, interpreters, samplers, targets

# Found beside the interpreters' search, whose folder harness.interpreters has put on the path.
from stack_judge import SCRIPT, judge, read_source

TITLE = "Truth: one running thread, not stopped"
PROGRAMS = ("plain", "generators", "constructors", "deep")
RATE_HZ, BLOCKING_RATE_HZ = 50_000, 5_000
SPAN_S = 1
# What comes with a span: the start of the sampler, and the judge.
SPAN_LIMIT_S = 30
GOAL_IMPOSSIBLE = {True: 0.00005, False: 0.0005}  # from 3.11 on; before
GOAL_MISPLACED, GOAL_DROPPED, GOAL_SHARE = 0.0005, 0.01, 0.015
# Of a case, for the spans that do not stop the target.
RUNNING_SHARE = 0.7


@dataclass(frozen=True)
class Plan:
    """How many samples are wanted of a case, and how long all cases together may take."""

    samples: int
    blocking_samples: int
    budget_s: float


SHORT, USUAL, LONG = Plan(50_000, 5_000, 180), Plan(200_000, 10_000, 460), Plan(1_000_000, 100_000, 3600)


class Unmeasured(Exception):
    pass


@dataclass
class Seen:
    """Sums over spans."""

    total: int = 0
    looks: int = 0
    dropped: int = 0
    spans: int = 0  # that count
    tried: int = 0
    best_share: float = 0  # of a processor that the target had
    impossible: Counter = field(default_factory=Counter)  # by stack
    misplaced: Counter = field(default_factory=Counter)
    innermost: Counter = field(default_factory=Counter)

    def add(self, verdict):
        counters = verdict.counters
        self.spans += 1
        self.total += verdict.total
        self.impossible.update(verdict.impossible)
        self.misplaced.update(verdict.misplaced)
        self.dropped += counters["inconsistent"] + counters["errors"]
        self.looks += counters["taken"] + counters["inconsistent"] + counters["errors"]
        for name, share in verdict.shares.items():
            self.innermost[name] += round(share * verdict.total)


def sample(context, pid, rate_hz, *options):
    """(what the judge says, the target's share of its processor) of a span; None for the first when it has no samples."""
    command = [context.tool("tests/tools/sample_stacks"), str(pid), str(rate_hz), str(SPAN_S), *options]
    text, _, _, share = samplers.run_beside(command, pid, stderr=subprocess.DEVNULL, limit_s=SPAN_LIMIT_S)
    try:
        sampled = json.loads(text)
    except ValueError:
        raise Unmeasured("the sampler failed") from None
    return judge(read_source(), sampled) if sampled["stacks"] else None, share


def gather(context, pid, rate_hz, wanted, until_s, *options):
    """So many samples of spans in which the target truly ran, or what there is of them when the time is over: of one span
    at least. A target that is stopped need not run truly."""
    seen = Seen()
    while seen.total < wanted and (seen.tried == 0 or time.monotonic() + SPAN_S < until_s):
        verdict, share = sample(context, pid, rate_hz, *options)
        seen.tried += 1
        seen.best_share = max(seen.best_share, share)
        if verdict and (options or share >= samplers.TRULY_RUNNING):
            seen.add(verdict)
    return seen


def greatest_difference(running, stopped):
    """(of the shares of the innermost functions, twice its standard error, whose)"""
    found = (0.0, 0.0, "")
    for name in running.innermost | stopped.innermost:
        one, other = running.innermost[name] / running.total, stopped.innermost[name] / stopped.total
        variance = one * (1 - one) / running.total + other * (1 - other) / stopped.total
        words = f"`{name}`: {one:.1%} for {other:.1%}"
        found = max(found, (abs(one - other), 2 * math.sqrt(variance), words))
    return found


def bounds(count):
    """Between which the mean lies of a Poisson distribution that gave `count`: each with 95% confidence, by Byar's
    approximation."""
    low = count * (1 - 1 / (9 * count) - 1.645 / (3 * math.sqrt(count))) ** 3 if count > 0 else 0
    more = count + 1
    return max(0, low), more * (1 - 1 / (9 * more) + 1.645 / (3 * math.sqrt(more))) ** 3


def verdict_of(count, total, goal):
    if total == 0:
        return "not measured"
    low, high = bounds(count)
    if high <= goal * total:
        return "reached"
    return "not reached" if low > goal * total else "too few samples to tell"


def percent(count, total):
    return f"{count / total:.4%}" if total else ""


def innermost_frames(key, count=4):
    """The names of a stack's last frames, in words."""
    names = re.findall(r"([^;@]+)@\d+:\d+", key)
    return ("… → " if len(names) > count else "") + " → ".join(names[-count:])


def why(stacks):
    """The most frequent of the stacks that are wrong."""
    key, count = stacks.most_common(1)[0]
    return f"{count:,} of {stacks.total():,} are `{innermost_frames(key)}`"


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
                listed = verdict != "reached" and len(by_verdict) > 1
                which = f"{len(names)}" if len(by_verdict) > 1 else f"all {len(names)}"
                said.append(f"**{verdict}** on {which}" + (f" ({', '.join(names)})" if listed else ""))
            yield f"- goal {goal}: " + "; ".join(said)


def measure(context, interpreter, program, plan, limit_s):
    """(running, stopped)"""
    begun_s = time.monotonic()
    with targets.running(interpreter.path, SCRIPT, program) as target:
        samplers.pin_target(target.pid)
        until_s = begun_s + limit_s * RUNNING_SHARE
        running = gather(context, target.pid, RATE_HZ, plan.samples, until_s)
        until_s = begun_s + limit_s
        return running, gather(context, target.pid, BLOCKING_RATE_HZ, plan.blocking_samples, until_s, "--blocking")


def judge_case(name, recent, running, stopped, verdicts):
    """(the cell of the shares, what is to be said of goals that were not reached)"""
    reasons = []
    goal = GOAL_IMPOSSIBLE[recent]
    of = "3.11 on" if recent else "3.8 to 3.10"
    impossible, misplaced = running.impossible.total(), running.misplaced.total()
    cases = (
        (f"≤ {goal:.3%} impossible ({of})", verdict_of(impossible, running.total, goal), "impossible", running.impossible),
        (
            f"≤ {GOAL_MISPLACED:.2%} misplaced",
            verdict_of(misplaced, running.total, GOAL_MISPLACED),
            "misplaced",
            running.misplaced,
        ),
        (
            "none impossible when stopped",
            "not reached" if stopped.impossible else "reached" if stopped.total else "not measured",
            "impossible when stopped",
            stopped.impossible,
        ),
    )
    for words, verdict, what, stacks in cases:
        verdicts.add(words, verdict, name)
        if verdict == "not reached":
            reasons.append(f"{what}: {why(stacks)}")
    verdicts.add(f"≤ {GOAL_DROPPED:.0%} dropped", verdict_of(running.dropped, running.looks, GOAL_DROPPED), name)
    if not running.total or not stopped.total:
        verdicts.add(f"± {GOAL_SHARE * 100:.1f} points", "not measured", name)
        return "", reasons
    difference, error, whose = greatest_difference(running, stopped)
    reached = "reached" if difference <= GOAL_SHARE else "not reached"
    reached = reached if error < GOAL_SHARE else "too few samples to tell"
    verdicts.add(f"± {GOAL_SHARE * 100:.1f} points", reached, name)
    if reached == "not reached":
        reasons.append(whose)
    return f"{difference * 100:.2f} ± {error * 100:.2f}", reasons


def row_of(name, recent, running, stopped, verdicts):
    """(a row, what is to be said of it)"""
    difference, reasons = judge_case(name, recent, running, stopped, verdicts)
    if not running.total:
        reasons.append(
            f"none of {running.tried} spans counts: the target had {running.best_share:.0%} of its processor at most"
        )
    impossible = percent(running.impossible.total(), running.total)
    misplaced = percent(running.misplaced.total(), running.total)
    dropped = percent(running.dropped, running.looks)
    spans = f"{running.spans} of {running.tried}"
    return [name, f"{running.total:,}", spans, impossible, misplaced, dropped, difference], reasons


def run(context):
    plan = LONG if context.long else SHORT if context.short else USUAL
    rows, said, verdicts = [], [], Verdicts()
    cases = [(interpreter, program) for interpreter in interpreters.one_of_each() for program in PROGRAMS]
    until_s = time.monotonic() + plan.budget_s
    for index, (interpreter, program) in enumerate(cases):
        name = f"{interpreter.minor} {program}"
        limit_s = max(0, until_s - time.monotonic()) / (len(cases) - index)
        try:
            seen = measure(context, interpreter, program, plan, limit_s)
        except (Unmeasured, samplers.TookTooLong, OSError, RuntimeError, AssertionError) as reason:
            rows.append([name, "not measured"])
            said.append(f"- {name}: not measured: {str(reason).splitlines()[0] if str(reason) else type(reason).__name__}")
            continue
        row, reasons = row_of(name, interpreter.at_least(3, 11), *seen, verdicts)
        rows.append(row)
        said += [f"- {name}: {reason}" for reason in reasons]
    head = ["target", "samples", "spans that count", "impossible", "misplaced", "dropped", "difference of shares, points"]
    return [
        *figures.table(head, [row + [""] * (len(head) - len(row)) for row in rows]),
        "",
        f"Asked for {RATE_HZ:,} samples a second, in spans of {SPAN_S} s, until there are {plan.samples:,} "
        f"({plan.blocking_samples:,} with `--blocking`) or the {plan.budget_s / 60:.1f} minutes for all of this are over; a "
        f"span counts when the target ran on a processor of its own for {samplers.TRULY_RUNNING:.0%} of it. Impossible: a "
        "caller that cannot have called the callee; misplaced: a caller's line that does not call it. Shares are of innermost "
        "functions, against those with `--blocking`, the greatest difference; ± is twice the standard error. A goal is "
        "reached when the samples show so with 95 % confidence"
        + ("." if context.long else "; the goals speak of a million samples, which `bench/run --long truth` takes."),
        "",
        *verdicts.lines(),
        *([""] if said else []),
        *said,
    ]
