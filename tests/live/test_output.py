"""What strobe writes: never what a terminal would obey, always JSON, whatever the locale."""

import json
import os
import shutil
import subprocess
import unicodedata

import harness
import pytest
from harness import Target, dump, strobe


def controls(text):
    """The characters that no text for a terminal should have, apart from the end of a line."""
    return {c for c in text if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or "\ud800" <= c <= "\udfff")}


def test_no_text_of_the_target_reaches_the_terminal_raw(python):
    with Target(python, "names.py") as target:
        result = strobe("dump", "--locals", target.pid)
        assert result.returncode == harness.OK
        assert controls(result.stdout) == set()
        assert "\u202e" not in result.stdout and "\u2028" not in result.stdout
        assert "\\x1b[31m" in result.stdout
        assert "surrogate_" in result.stdout


def width(text):
    """Columns on a terminal, as far as marked.py needs it."""
    marks = sum(unicodedata.category(c) in ("Mn", "Mc", "Cf") for c in text)
    return len(text) + sum(unicodedata.east_asian_width(c) == "W" for c in text) - marks


def marked(told, line):
    """(what strobe shows of the frame's line of source, the mark under it or None), without indentation."""
    shown = line.strip().replace("\t", " ")
    if told["column"] is None:
        return shown, None
    encoded = line.encode()
    end = told["end_column"] if told["end_line"] == told["line"] else len(line.rstrip().encode())
    before, span = encoded[: told["column"]].decode().lstrip(), encoded[told["column"] : end].decode()
    if span == line.strip():
        return shown, None
    return shown, " " * width(before) + "^" * width(span)


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["", "crlf"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_source_lines_are_marked_exactly(python, locale, ends, tmp_path):
    """Under the very characters that the interpreter says it computes, whatever their width."""
    copied = shutil.copytree(harness.TARGETS, tmp_path / "targets") / "marked.py"
    lines = copied.read_text(encoding="utf-8").splitlines()
    copied.write_bytes(ends.join([*lines, ""]).encode())
    with Target(python, copied) as target:
        told = target.said["threads"][0]["frames"]
        shown = strobe("dump", target.pid, env={**os.environ, "LC_ALL": locale}).stdout
    told = [frame for frame in told if len(lines[frame["line"] - 1]) < 400]
    assert len(told) > 10
    at = shown.split("\n")
    for frame in told:
        text, mark = marked(frame, lines[frame["line"] - 1])
        place = at.index(next(line for line in at if line.endswith(f"  {copied}:{frame['line']}")))
        assert at[place + 1] == " " * 8 + text
        under = at[place + 2]
        assert under == " " * 8 + mark if mark else "^" not in under


def test_of_a_long_line_the_marked_part_is_shown(python):
    with Target(python, "marked.py") as target:
        lines = strobe("dump", target.pid).stdout.split("\n")
    line = next(line for line in lines if line.startswith(" " * 8) and '"é' in line)
    assert len(line.strip().encode()) <= 400 + 2 * len("…".encode()) and line.endswith("…")
    # Where nothing tells of columns, its beginning.
    assert line.startswith(" " * 8 + ("…" if python.at_least(3, 11) else 'return ["é0"'))
    if python.at_least(3, 11):
        under = lines[lines.index(line) + 1]
        assert line[under.index("^") : under.rindex("^") + 1] == "behind(call)"


def frames(dumped):
    return [thread["frames"] for thread in dumped["threads"]]


@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "LANG": ""}, {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "no_SUCH"}, None],
    ids=["C", "POSIX", "C.UTF-8", "unknown", "empty"],
)
def test_the_locale_changes_nothing(any_python, environment):
    with Target(any_python, "names.py") as target:
        reference = strobe("dump", "--json", "--locals", target.pid)
        plain = strobe("dump", target.pid)
        env = {} if environment is None else {**os.environ, **environment}
        assert frames(strobe("dump", "--json", "--locals", target.pid, env=env).json()) == frames(reference.json())
        result = strobe("dump", target.pid, env=env)
    assert result.returncode == harness.OK
    assert result.stderr == ""
    # The states of the threads may have changed between the two.
    assert result.stdout.splitlines()[3:] == plain.stdout.splitlines()[3:]


@pytest.mark.parametrize("options", [[], ["--json"], ["--locals"], ["--json", "--locals"]], ids=" ".join)
def test_output_nobody_reads(any_python, options):
    """A closed pipe, a full device, no standard output at all: an exit status and at most one line, never a signal."""
    with Target(any_python, "names.py") as target:
        command = [harness.STROBE, "dump", *options, str(target.pid)]
        reads, writes = os.pipe()
        os.close(reads)
        closed = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE)
        os.close(writes)
        with open("/dev/full", "w") as full:
            filled = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
        missing = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE)
    # Nobody reads: nothing to complain about; as if cut by `head`.
    assert (closed.returncode, closed.stderr) in ((harness.OK, b""), (-13, b"")), closed
    for finished in (filled, missing):
        assert finished.returncode == harness.FAILED
        assert finished.stderr.startswith(b"strobe: ") and finished.stderr.count(b"\n") == 1, finished.stderr


def test_json_is_one_document_of_utf_8(python):
    with Target(python, "names.py") as target:
        result = subprocess.run([harness.STROBE, "dump", "--json", str(target.pid)], stdout=subprocess.PIPE, check=True)
        document = json.loads(result.stdout.decode("utf-8", "strict"))
    assert document["pid"] == target.pid
    assert result.stdout.endswith(b"}\n")


def test_a_name_is_never_cut(python):
    with Target(python, "names.py") as target:
        lengths = [len(frame["function"]) for frame in dump(target)["threads"][0]["frames"]]
    assert lengths.count(100_000) == 2
