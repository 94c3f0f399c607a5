"""What `strobe report` makes of the captures of tests/golden/captures, as the texts beside them have it."""

import json
from pathlib import Path

from harness import strobe

FOLDER = Path(__file__).resolve().parent / "captures"
FORMATS = ("collapsed", "json")


def recorded():
    return sorted(FOLDER.glob("*.strobe"))


def report(path):
    """What it says and how it ends, in each of FORMATS. Nothing in it depends on this machine."""
    parts = []
    for name in FORMATS:
        result = strobe("report", "-f", name, path.name, cwd=FOLDER)
        output = result.stdout
        if name == "json" and output:
            output = json.dumps(json.loads(output), indent=1, ensure_ascii=False) + "\n"
        parts.append(f"$ strobe report -f {name} {path.name}\n{output}{result.stderr}exit status {result.returncode}\n")
    return "\n".join(parts)
