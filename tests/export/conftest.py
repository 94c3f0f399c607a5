"""What the tests of the formats share: making a file of a profile, and the programs that read it."""

import importlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import descriptions

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("STROBE") or HERE.parent.parent / "build" / "strobe").resolve().parent
MAKE_PROFILE = BUILD / "tests" / "tools" / "make_profile"
CONSUMERS = HERE / "consumers"


def need(found, what):
    """Consumers are heavy: without them their tests are skipped, but not where everything must be tested."""
    if not found:
        message = f"{what} is not there: tools/install-deps consumers"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def python_module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return need(None, name)


def make(description, format, path, *options, env=None):
    """Writes the profile in a format to the path, which it returns."""
    with open(path, "wb") as output:
        subprocess.run(
            [MAKE_PROFILE, format, *options],
            input=json.dumps(description).encode(),
            stdout=output,
            check=True,
            timeout=60,
            env={**os.environ, **(env or {})},
        )
    return path


def node(script, *arguments, timeout=90):
    """Runs one of consumers/ and returns what it prints, parsed line by line."""
    need(shutil.which("node") and (CONSUMERS / "node_modules").is_dir(), "node with consumers/node_modules")
    finished = subprocess.run(
        ["node", CONSUMERS / script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout
    )
    assert finished.returncode == 0, finished.stderr.decode()[-2000:]
    return [json.loads(line) for line in finished.stdout.splitlines()]


@pytest.fixture(scope="session")
def app(tmp_path_factory):
    path = tmp_path_factory.mktemp("app") / "app.py"
    path.write_text(descriptions.SOURCE)
    return str(path)


@pytest.fixture(scope="session")
def hostile(app):
    return descriptions.small(app)


@pytest.fixture(scope="session")
def small(hostile):
    """The same profile as it is to be shown."""
    return descriptions.shown(hostile)


@pytest.fixture(scope="session")
def truth(small):
    return descriptions.Truth(small)


@pytest.fixture(scope="session")
def report(hostile, tmp_path_factory):
    """report(format): the small profile in that format, made once."""
    folder = tmp_path_factory.mktemp("reports")
    endings = {"speedscope": "speedscope.json", "gecko": "gecko.json", "chrome": "trace.json", "pprof": "pb.gz"}

    def made(format):
        path = folder / f"small.{endings.get(format, format)}"
        return path if path.exists() else make(hostile, format, path)

    return made


def name_of(frame):
    return frame["qualname"] or {descriptions.NATIVE: "<native>", descriptions.GC: "<GC>"}[frame["kind"]]


def function_of(frame):
    return frame["function"] or {descriptions.NATIVE: "<native>", descriptions.GC: "<GC>"}[frame["kind"]]
