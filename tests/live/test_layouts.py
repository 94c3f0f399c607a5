"""Every offset that strobe uses, against the headers of the interpreter: compiled by a C compiler, never by strobe."""

import functools
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import HERE, STROBE

PRINT_LAYOUT = STROBE.parent / "tests" / "tools" / "print_layout"
GENERATE_LAYOUTS = HERE.parent.parent / "tools" / "generate-layouts"

# As long as the longest table; what is behind a shorter one is the runtime's next field.
TABLE_BYTES = 1024
READ_OWN_TABLE = f"""
import ctypes, sys
runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
sys.stdout.buffer.write(ctypes.string_at(runtime, {TABLE_BYTES}))
"""

# Builds that are not at hand can still be measured: these are all that pyconfig.h says of them.
BUILDS = {
    "debug": ["Py_DEBUG"],
    "free-threaded": ["Py_GIL_DISABLED"],
    "free-threaded-debug": ["Py_GIL_DISABLED", "Py_DEBUG"],
}
COMPILERS = {"aarch64-glibc": "aarch64-linux-gnu-gcc", "x86-64-musl": "musl-gcc"}

# Not offsets of fields. The sizes of the states depend on what was given to the compiler (the JIT's options add to
# their ends), and no header knows that; strobe does not need them to be exact.
NOT_COMPARED = {"version", "runtime.size", "interp.size", "gil.size"}


def generate(action, python, *options):
    finished = subprocess.run(
        [str(GENERATE_LAYOUTS), action, *options, python.path], stdout=subprocess.PIPE, timeout=60, check=True
    )
    return finished.stdout


def measure(python, *options):
    """What the interpreter's own headers say, {field: offset or None}."""
    return json.loads(generate("--json", python, *options))


def print_layout(*arguments):
    """What strobe says, or None."""
    finished = subprocess.run([str(PRINT_LAYOUT), *map(str, arguments)], stdout=subprocess.PIPE, timeout=60)
    return json.loads(finished.stdout) if finished.returncode == 0 else None


def decode(table: bytes, folder: Path):
    path = folder / "debug_offsets"
    path.write_bytes(table)
    return print_layout(path)


def differences(layout, truth):
    assert layout is not None and layout.keys() == truth.keys()
    return {
        field: f"{layout[field]}, but {truth[field]} in the headers"
        for field in truth
        if field not in NOT_COMPARED and layout[field] != truth[field]
    }


def assert_self_described(layout, truth):
    """A layout made of debug offsets."""
    assert differences(layout, truth) == {}
    assert layout["version"] == truth["version"]
    # Where this is derived, it only has to cover the struct.
    assert layout["gil.size"] >= truth["gil.size"]


def assert_in_tables(python, truth):
    """One of the tables is right."""
    minor = python.version[1]
    tables = []
    while (layout := print_layout(minor, len(tables))) is not None:
        tables.append(layout)
    assert tables, f"no table of 3.{minor}"
    assert {} in [differences(layout, truth) for layout in tables], differences(tables[0], truth)


@functools.lru_cache(maxsize=None)
def internal_headers(python):
    """The folder that the internal headers are in, installed or not."""
    question = "import sysconfig; print(sysconfig.get_path('include'))"
    answer = subprocess.run([python.path, "-I", "-c", question], stdout=subprocess.PIPE, timeout=60, check=True)
    return Path(answer.stdout.decode().strip()) / "internal"


@pytest.fixture
def python_with_headers(python):
    if not internal_headers(python).is_dir():
        pytest.skip("its internal headers are not installed")
    return python


def test_layout(python_with_headers, tmp_path):
    python = python_with_headers
    truth = measure(python)
    if python.at_least(3, 13):
        # -I: nothing of this machine takes part. The process itself says what is in its memory.
        answer = subprocess.run([python.path, "-I", "-c", READ_OWN_TABLE], stdout=subprocess.PIPE, timeout=60, check=True)
        assert_self_described(decode(answer.stdout, tmp_path), truth)
    else:
        assert_in_tables(python, truth)


@pytest.mark.parametrize("build", BUILDS)
def test_layout_of_other_builds(python_with_headers, build, tmp_path):
    python = python_with_headers
    options = [f"-D{name}" for name in BUILDS[build]]
    if python.at_least(3, 13):
        truth = measure(python, *options)
        assert truth["free_threaded"] == ("Py_GIL_DISABLED" in BUILDS[build] or python.free_threaded)
        assert_self_described(decode(generate("--debug-offsets", python, *options), tmp_path), truth)
    elif build == "debug":
        assert_in_tables(python, measure(python, *options))


def lend_configuration(python, folder):
    """Debian's pyconfig.h asks for the one of the compiler's architecture. What it says is the same on all that strobe
    supports, so ours does."""
    for own in internal_headers(python).parent.parent.glob("x86_64-linux-gnu/python3*"):
        (folder / "aarch64-linux-gnu").mkdir(exist_ok=True)
        (folder / "aarch64-linux-gnu" / own.name).symlink_to(own)


@pytest.mark.parametrize("platform", COMPILERS)
def test_layout_on_other_platforms(python_with_headers, platform, tmp_path):
    python = python_with_headers
    compiler = COMPILERS[platform]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    lend_configuration(python, tmp_path)
    options = ["--cc", f"{compiler} -idirafter {tmp_path}"]
    if python.at_least(3, 13):
        table = generate("--debug-offsets", python, *options)
        assert_self_described(decode(table, tmp_path), measure(python, *options))
    elif platform == "x86-64-musl":  # tables of another architecture are not compiled in
        assert_in_tables(python, measure(python, *options))
