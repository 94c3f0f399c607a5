"""Profilers that start the program they look at, each as its users would start it, with its defaults."""

import os
import signal
import subprocess
from dataclasses import dataclass, field

from harness import packages, peers


ALL, CPU_ONLY = "strobe run", "strobe run --cpu-only"
# Both may run at once.
MEMRAY_FILES = {"memray": "memray.bin", "memray --trace-python-allocators": "memray-python.bin"}


@dataclass(frozen=True)
class Launcher:
    """A command that runs a Python script (command() + [script, arguments...]) under a profiler, and its environment."""

    name: str
    words: tuple
    extra: dict = field(default_factory=dict)

    def command(self, *script):
        return [*self.words, *map(str, script)]

    @property
    def environment(self):
        return {**os.environ, **self.extra}


def run_command(command, environment, folder, limit_s):
    """Its exit status; None when it took too long."""
    with open(f"{folder}/output", "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        # Some have processes of their own.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def bare(interpreter):
    return Launcher("bare", (interpreter.path,))


def strobe(context, interpreter, folder, name=ALL, options=(), stem="strobe"):
    words = (context.strobe, "run", *options, "--capture", f"{folder}/{stem}.strobe", "-o", f"{folder}/{stem}.txt")
    return Launcher(name, (*words, "-f", "table", "--", interpreter.path))


def scalene(interpreter, folder):
    found = packages.folder("scalene", interpreter)
    if found is None:
        return None
    words = (interpreter.path, "-m", "scalene", "run", "--cpu-only", "-o", f"{folder}/scalene.json")
    return Launcher("Scalene --cpu-only", words, {"PYTHONPATH": str(found)})


def py_spy(interpreter, folder):
    found = peers.find("py-spy")
    words = (found, "record", "-f", "raw", "-o", f"{folder}/py-spy", "--", interpreter.path)
    return Launcher("py-spy record", words) if found else None


def cpython(interpreter, folder):
    if not interpreter.at_least(3, 15):
        return None
    words = (interpreter.path, "-m", "profiling.sampling", "run", "--collapsed", "-o", f"{folder}/sampling.txt")
    return Launcher("profiling.sampling", words)


def of_interpreter(context, interpreter, folder):
    """All that run here, strobe first."""
    found = [
        strobe(context, interpreter, folder),
        strobe(context, interpreter, folder, CPU_ONLY, ("--cpu-only",), "cpu-only"),
        scalene(interpreter, folder),
        py_spy(interpreter, folder),
        cpython(interpreter, folder),
    ]
    return [launcher for launcher in found if launcher is not None]


def scalene_memory(interpreter, folder):
    found = packages.folder("scalene", interpreter)
    if found is None:
        return None
    words = (interpreter.path, "-m", "scalene", "run", "-o", f"{folder}/scalene.json")
    return Launcher("Scalene", words, {"PYTHONPATH": str(found)})


def memray(interpreter, folder, python_allocators):
    found = packages.folder("memray", interpreter)
    if found is None:
        return None
    name = "memray --trace-python-allocators" if python_allocators else "memray"
    options = ("--trace-python-allocators",) if python_allocators else ()
    words = (interpreter.path, "-m", "memray", "run", "-q", "-f", *options, "-o", f"{folder}/{MEMRAY_FILES[name]}")
    return Launcher(name, words, {"PYTHONPATH": str(found)})


def tracemalloc(interpreter):
    return Launcher("tracemalloc", (interpreter.path, "-X", "tracemalloc"))


def fil(interpreter, folder):
    found = packages.folder("fil", interpreter)
    if found is None:
        return None
    words = (interpreter.path, "-m", "filprofiler", "-o", f"{folder}/fil", "--no-browser", "run")
    return Launcher("Fil", words, {"PYTHONPATH": str(found)})


def memory_peers(interpreter, folder):
    """All others that tell of memory and run here."""
    found = [
        scalene_memory(interpreter, folder),
        memray(interpreter, folder, False),
        memray(interpreter, folder, True),
        tracemalloc(interpreter),
        fil(interpreter, folder),
    ]
    return [launcher for launcher in found if launcher is not None]
