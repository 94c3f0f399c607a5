"""Finds the CPython interpreters of this machine and says what each is, as each says it of itself."""

import functools
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# What strobe promises to read.
REQUIRED_VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.15")
FIRST_SUPPORTED = (3, 8)

NAME = re.compile(r"python(\d(\.\d+)?t?d?)?$")

# Runs under Python 2 as well. Whether libpython is shared is read from the memory map and not from the build's
# configuration, which need not tell the truth about a relinked or repackaged interpreter.
QUESTION = """
import json, platform, sys, sysconfig
executable = sys.executable
with open('/proc/self/maps') as maps:
    shared = any('/libpython' in line for line in maps)
print(json.dumps({
    'path': executable,
    'implementation': platform.python_implementation(),
    'version': list(sys.version_info[:3]),
    'version_text': platform.python_version(),
    'free_threaded': bool(sysconfig.get_config_var('Py_GIL_DISABLED')),
    'debug': hasattr(sys, 'gettotalrefcount'),
    'shared': shared,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    path: str
    origin: str  # pyenv, pack (from $STROBE_PYTHONS), system or path
    version: tuple
    version_text: str  # as platform.python_version() says, "3.15.0a2"
    free_threaded: bool
    debug: bool
    shared: bool
    pie: bool

    @property
    def minor(self):
        """The version as in REQUIRED_VERSIONS: "3.13t"."""
        return f"{self.version[0]}.{self.version[1]}" + ("t" if self.free_threaded else "")

    @property
    def label(self):
        return self.minor + ("d" if self.debug else "") + "-" + self.origin

    def at_least(self, *version):
        return self.version[: len(version)] >= version

    def describe(self):
        kinds = [
            "free-threaded" if self.free_threaded else None,
            "debug" if self.debug else None,
            "libpython" if self.shared else "static",
            "PIE" if self.pie else "no PIE",
        ]
        return f"{self.version_text:10} {self.path} ({', '.join(kind for kind in kinds if kind)})"


def is_pie(path):
    """Whether an ELF executable is position independent: its e_type is ET_DYN."""
    with open(path, "rb") as file:
        header = file.read(18)
    return header[:4] == b"\x7fELF" and header[16:18] == b"\x03\x00"


def candidate_folders():
    """(origin, folder) in which interpreters may lie, the more telling origins first."""
    pyenv_root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for folder in sorted(pyenv_root.glob("versions/*/bin")):
        yield "pyenv", folder
    if os.environ.get("STROBE_PYTHONS"):
        for folder in sorted(Path(os.environ["STROBE_PYTHONS"]).glob("*/bin")):
            yield "pack", folder
    for folder in os.get_exec_path():
        # pyenv's shims are shell scripts that lead to what is listed above.
        if Path(folder).name != "shims":
            yield "system" if folder in ("/usr/bin", "/bin") else "path", Path(folder)


def candidates():
    """{real path: origin} of everything that is called like an interpreter; hard links count once."""
    found = {}
    seen = set()
    for origin, folder in candidate_folders():
        try:
            names = sorted(entry.name for entry in folder.iterdir() if NAME.match(entry.name))
        except OSError:
            continue
        for name in names:
            path = os.path.realpath(folder / name)
            if not os.access(path, os.X_OK):
                continue
            status = os.stat(path)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                found[path] = origin
    return found


def ask(path, origin):
    """The Interpreter at `path`, or None when it does not run or is no CPython."""
    try:
        # -I and -E: the environment of the test run must not leak in; Python 2 knows only the latter.
        answer = subprocess.run([path, "-E", "-s", "-c", QUESTION], stdout=subprocess.PIPE, timeout=60, check=True)
        told = json.loads(answer.stdout)
        real = os.path.realpath(told["path"])
        if told["implementation"] != "CPython" or real != path:
            return None
        return Interpreter(
            path=path,
            origin=origin,
            version=tuple(told["version"]),
            version_text=told["version_text"],
            free_threaded=told["free_threaded"],
            debug=told["debug"],
            shared=told["shared"],
            pie=is_pie(path),
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


@functools.lru_cache(maxsize=None)
def discover():
    """Every CPython here, sorted by version."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = pool.map(lambda item: ask(*item), candidates().items())
    found = [interpreter for interpreter in answers if interpreter is not None]
    return tuple(sorted(found, key=lambda i: (i.version, i.free_threaded, i.debug, i.path)))


def supported():
    return [interpreter for interpreter in discover() if interpreter.version >= FIRST_SUPPORTED]


def newest():
    """For what does not depend on the version; no debug build where there is another, which is as most programs have it."""
    return max(supported(), key=lambda found: (not found.debug, supported().index(found)))


def unsupported():
    return [interpreter for interpreter in discover() if interpreter.version < FIRST_SUPPORTED]


def labels(interpreters):
    """One label for each, made unique by the patch version and then by a number."""
    result = []
    for interpreter in interpreters:
        label = interpreter.label
        if label in result:
            label = label.replace(interpreter.minor, interpreter.version_text, 1)
        number = 2
        unique = label
        while unique in result:
            unique = f"{label}-{number}"
            number += 1
        result.append(unique)
    return result
