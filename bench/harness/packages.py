"""Packages for interpreters that have no pip: wheels from PyPI, unpacked into a folder each, beside the test environment."""

import functools
import shutil
import subprocess
import sys

from harness.peers import TOP, VENV

REQUIREMENTS = TOP / "bench"


@functools.cache
def folder(name, interpreter):
    """Where the packages of bench/requirements-NAME.txt lie for this interpreter, installed at the first call; None when
    they are not to be had for it."""
    requirements = REQUIREMENTS / f"requirements-{name}.txt"
    target = VENV.parent / "packages" / f"{name}-{interpreter.minor}"
    stamp = target / "installed.txt"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return target
    shutil.rmtree(target, ignore_errors=True)
    version = "{}.{}".format(*interpreter.version)
    command = [str(VENV / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--target", str(target), "--implementation", "cp", "--python-version", version]
    command += ["--abi", "cp" + interpreter.minor.replace(".", ""), "--abi", "abi3", "--abi", "none"]
    result = subprocess.run([*command, "-r", str(requirements)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        print(f"no {name} for {interpreter.minor}: {result.stdout.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    stamp.write_text(requirements.read_text())
    return target
