"""NumPy for interpreters that have none: its wheels from PyPI, unpacked into a folder each, beside the test environment."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.prefix) / "numpy"
# Versions apart enough to have other layouts; the newest CPython may have no wheel yet.
MINORS = ("3.8", "3.12", "3.13t", "3.14")


def folder(python):
    """Where the wheel for this interpreter lies, installed at the first call; None for an interpreter that is not in MINORS
    or has no wheel."""
    if python.minor not in MINORS:
        return None
    target = FOLDER / python.minor
    if (target / "numpy").is_dir():
        return target
    version = python.minor.rstrip("t")
    abi = "cp" + python.minor.replace(".", "")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", str(target)]
    command += ["--implementation", "cp", "--python-version", version, "--abi", abi, "numpy"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(result.stdout)
    return target if result.returncode == 0 else None
