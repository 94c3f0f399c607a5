"""The tools that are compared: where they are and which version."""

import re
import shutil
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
VENV = TOP / ".venv" / "bin"


def find(name):
    """The path of a peer, from .venv/ (tools/install-deps bench) or else PATH; None when there is none."""
    own = VENV / name
    return str(own) if own.exists() else shutil.which(name)


def version(*command):
    """The version number in what a command prints of itself; None when it does not run here."""
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\d+(\.\d+)+\S*", answer.stdout)
    return found[0] if answer.returncode == 0 and found else None


def pinned(name):
    """What bench/requirements-NAME.txt asks for, in words: "memray 1.20.0"."""
    lines = (TOP / "bench" / f"requirements-{name}.txt").read_text().splitlines()
    return next(line for line in lines if "==" in line).replace("==", " ")


def describe(strobe):
    """One phrase for each tool that runs here."""
    told = [f"strobe {version(strobe, '--version')}"]
    for name in ("py-spy", "austin"):
        path = find(name)
        number = version(path, "--version") if path else None
        told.append(f"{name} {number}" if number else f"no {name}")
    return ", ".join(told)
