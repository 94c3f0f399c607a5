"""One look at a process: `strobe dump` against what else shows the stacks of a running Python."""

import re
import subprocess
from dataclasses import dataclass

from harness import figures, interpreters, peers, targets

TITLE = "One look at a process, start-up included"
MEBIBYTE = 1 << 20
FRAME = re.compile(r"(?<!return )step_\d")


@dataclass(frozen=True)
class Case:
    """A target and what is asked of strobe there, as a share of py-spy's wall time."""

    threads: int
    frames: int
    share_of_py_spy: float
    interpreter: object  # None when this machine has none that fits

    def title(self):
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        build = "libpython" if self.interpreter.shared else "static"
        return f"{threads} × {self.frames} frames, {self.interpreter.version_text} {build}"


def cases():
    static = interpreters.pick(shared=False, version=(3, 13)) or interpreters.pick(shared=False)
    shared = interpreters.pick(shared=True)
    newest = interpreters.pick(version=(3, 15))
    found = [Case(1, 20, 1 / 2, interpreter) for interpreter in (static, shared, newest)]
    found += [Case(100, 50, 1 / 10, interpreter) for interpreter in (static, shared, newest)]
    return [case for case in found if case.interpreter is not None]


def commands(context, case, pid):
    """{name: command} of all tools that may know how to look at this process."""
    found = {"strobe": [context.strobe, "dump", str(pid)]}
    py_spy, austin = peers.find("py-spy"), peers.find("austin")
    if py_spy:
        found["py-spy"] = [py_spy, "dump", "--pid", str(pid)]
        found["py-spy --nonblocking"] = [py_spy, "dump", "--nonblocking", "--pid", str(pid)]
    if austin:
        found["austin"] = [austin, "-w", str(pid)]
    if case.interpreter.at_least(3, 15):
        found["CPython's profiling.sampling"] = [case.interpreter.path, "-m", "profiling.sampling", "dump", "-a", str(pid)]
    return found


def sees_everything(command, case):
    """Whether the tool's output names as many frames of the target's chain as there are."""
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace")
    # Source lines name the next step too. Three frames of a thread are not of the chain, and one of the main thread.
    return answer.returncode == 0 and len(FRAME.findall(answer.stdout)) >= case.threads * (case.frames - 3)


def measure_case(context, case):
    """{tool: [Cost, ...]} and the tools that failed."""
    with targets.running(case.interpreter.path, "waiting_threads.py", case.threads, case.frames) as target:
        targets.wait_until_asleep(target.pid)
        wanted = commands(context, case, target.pid)
        able = {name: command for name, command in wanted.items() if sees_everything(command, case)}
        failed = [name for name in wanted if name not in able]
        return figures.measure_by_turns(context.measure, able, context.runs), failed


def rows_of(case, costs, failed):
    rows = []
    for name, own in costs.items():
        wall = figures.Spread.of(cost.wall_s for cost in own).scaled(1e3)
        cpu = figures.Spread.of(cost.cpu_s for cost in own).scaled(1e3)
        peak = figures.Spread.of(cost.peak_bytes for cost in own).scaled(1 / MEBIBYTE)
        shares = [""] * 2
        if name != "strobe":
            shares = [f"{figures.pairwise_ratio(costs['strobe'], own, figure):.3f}" for figure in ("wall_s", "cpu_s")]
        title = case.title() if name == "strobe" else ""
        rows.append([title, name, wall.text(), f"{cpu.median:.2f}", f"{peak.median:.1f}", *shares])
    rows += [["", name, "does not see the frames", "", "", "", ""] for name in failed]
    return rows


def verdict(case, costs):
    """Whether the goal was reached, in words; None where there is nothing to hold strobe against."""
    if "py-spy" not in costs or "strobe" not in costs:
        return None
    faster = [name for name in costs if name.startswith("py-spy")]
    ratios = [figures.pairwise_ratio(costs["strobe"], costs[name], "wall_s") for name in faster]
    memory = figures.pairwise_ratio(costs["strobe"], costs["py-spy"], "peak_bytes")
    reached = max(ratios) <= case.share_of_py_spy and memory <= 1
    return (
        f"- {case.title()}: goal ≤ {case.share_of_py_spy:.2g} of py-spy's wall time and no more memory: "
        f"**{'reached' if reached else 'not reached'}** ({max(ratios):.3f} of the faster of its two ways; "
        f"{memory:.2f} of its memory)"
    )


def run(context):
    head = ["target", "tool", "wall ms: median (least–greatest)", "CPU ms", "peak MiB"]
    head += ["strobe's share of its wall", "… of its CPU"]
    rows, verdicts = [], []
    for case in cases():
        costs, failed = measure_case(context, case)
        rows += rows_of(case, costs, failed)
        verdicts.append(verdict(case, costs))
    lines = figures.table(head, rows)
    lines += [
        "",
        f"{context.runs} runs of each, by turns; shares are medians over pairs of runs. All threads of the target wait. "
        "py-spy stops the target unless it is told `--nonblocking`; the others never do here. strobe and CPython's "
        "sampler print source lines too, py-spy and austin do not.",
    ]
    return lines + ["", *[line for line in verdicts if line]]
