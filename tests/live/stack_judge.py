"""Which stacks of targets/alternating.py there can be.

The program says with its marks which function can call which, and on which line. A stack with another pair of neighbours,
or with another line, never was.
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "targets" / "alternating.py"
DEPTH = 150


@dataclass
class Source:
    names: dict = field(default_factory=dict)  # first line → name
    calls: dict = field(default_factory=dict)  # (caller, callee) → lines


def read_source():
    """What targets/alternating.py says."""
    text = SCRIPT.read_text()
    source = Source({1: "<module>", 0: "<module>"})
    spans = {}

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                source.names[child.lineno] = prefix + child.name
                spans.update(dict.fromkeys(range(child.lineno, child.end_lineno + 1), prefix + child.name))
            visit(child, prefix + child.name + "." if isinstance(child, ast.ClassDef) else prefix)

    visit(ast.parse(text), "")
    for number, line in enumerate(text.splitlines(), 1):
        if mark := re.search(r"# -> (.*)", line):
            for callee in mark[1].split(", "):
                source.calls.setdefault((spans.get(number, "<module>"), callee), set()).add(number)
    return source


@dataclass
class Verdict:
    total: int = 0
    impossible: dict = field(default_factory=dict)
    misplaced: dict = field(default_factory=dict)
    shares: dict = field(default_factory=dict)  # of the innermost functions
    counters: dict = field(default_factory=dict)

    @property
    def impossible_share(self):
        return sum(self.impossible.values()) / max(1, self.total)

    @property
    def misplaced_share(self):
        return sum(self.misplaced.values()) / max(1, self.total)

    @property
    def dropped_share(self):
        dropped = self.counters["inconsistent"] + self.counters["errors"]
        return dropped / max(1, dropped + self.counters["taken"])


def judge(source, sampled):
    """Which of the stacks cannot have been."""
    verdict = Verdict(counters=sampled)
    plain_names = {name.rpartition(".")[2] for name in source.names.values()}
    for key, count in sampled["stacks"].items():
        frames = re.findall(r"([^;@]+)@(\d+):(\d+)", key)
        # Before 3.13 __await__ has its name only; nothing else has two functions on one line.
        stack = [(source.names.get(int(first), name), int(line)) for name, first, line in frames]
        names = [name for name, _ in stack]
        pairs = list(zip(stack, stack[1:]))
        verdict.total += count
        assert all(name in plain_names or name == "<module>" for name, _, _ in frames), key
        deep = [name for name in names if name in ("down1", "down2")]
        on_leaf = names and names[-1] in ("inner1", "inner2", "work1", "work2") and deep
        if (
            not names
            or names[0] != "<module>"
            or any((a, b) not in source.calls for (a, _), (b, _) in pairs)
            or len(deep) > DEPTH
            or (on_leaf and len(deep) != DEPTH)
        ):
            verdict.impossible[key] = count
        elif any(line not in source.calls[a, b] for (a, line), (b, _) in pairs):
            verdict.misplaced[key] = count
        leaf = names[-1] if names else ""
        verdict.shares[leaf] = verdict.shares.get(leaf, 0) + count
    verdict.shares = {name: count / verdict.total for name, count in verdict.shares.items()}
    return verdict
