"""The capture file that `strobe attach` writes: its name, its beginning, and what is left of it however strobe ends."""

import json
import os
import random
import re
import resource
import select
import subprocess
import time

import harness
import pytest
from harness import Target, assert_refuses, strobe
from test_attach import SIGNALLED, attached, function_of, report, script  # noqa: F401 (a fixture)

DAMAGED = 6


def await_size(path, size_bytes):
    """Waits until the file is larger than this, and returns how large. No event tells of it."""
    deadline_s = time.monotonic() + harness.TIMEOUT_S
    while not path.exists() or path.stat().st_size <= size_bytes:
        assert time.monotonic() < deadline_s, f"{path} does not grow"
        os.sched_yield()
    return path.stat().st_size


def test_killed_at_a_random_moment(any_python, script, tmp_path):
    capture = tmp_path / "cut.strobe"
    with Target(any_python, script(SIGNALLED)) as target:
        with attached(target, "--capture", capture, folder=tmp_path) as running:
            size = await_size(capture, await_size(capture, 0))
            select.select([running.process.stdout], [], [], random.random())
            running.process.kill()
            killed_s = time.monotonic()
            running.process.wait()
    result = strobe("report", "-f", "json", capture)
    assert result.returncode == DAMAGED
    assert re.fullmatch(r"strobe: [^\n]+\n", result.stderr)
    seen = json.loads(result.stdout)
    assert function_of(seen, "work")["total_samples"] > 0
    assert seen["samples"]["taken"] > 0
    # What was sampled in the last second may be lost, but no more; half a second is for a strobe that was kept waiting.
    assert seen["elapsed_s"] >= killed_s - running.begun_s - 1.5
    assert size > 0
    table = strobe("report", capture)
    assert table.returncode == DAMAGED
    assert "no end" in table.stdout


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The path of a capture of a mix.py."""
    import interpreters

    folder = tmp_path_factory.mktemp("whole")
    with Target(interpreters.newest(), "mix.py", 1000) as target:
        target.send()
        capture = folder / "whole.strobe"
        result = strobe("attach", "-d", "0.5", "--capture", capture, "-o", folder / "first.json", target.pid)
        assert result.returncode == harness.OK, result
    return capture


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.999])
def test_a_cut_file(whole, tmp_path, share):
    data = whole.read_bytes()
    cut = tmp_path / "cut.strobe"
    cut.write_bytes(data[: int(len(data) * share)])
    result = strobe("report", cut)
    assert result.returncode == DAMAGED
    assert re.fullmatch(r"strobe: [^\n]*cut\.strobe[^\n]*\n", result.stderr)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x7fELF" + bytes(500), b"STROBE"], ids=repr)
def test_not_a_capture(whole, tmp_path, content):
    path, out = tmp_path / "other.strobe", tmp_path / "out.strobe"
    path.write_bytes(content)
    for command in (["report", path], ["report", path, path], ["diff", whole, path], ["merge", path, "-o", out]):
        result = strobe(*command)
        assert (result.returncode, result.stdout) == (DAMAGED, ""), result
        assert re.fullmatch(r"(strobe: [^\n]*other\.strobe[^\n]*\n)+", result.stderr)
        assert not out.exists()
    # The others are reported, and merged, nevertheless.
    for command in (["report", path, whole, "-f", "json"], ["merge", whole, path, "-o", out]):
        result = strobe(*command)
        assert result.returncode == DAMAGED
        assert re.fullmatch(r"strobe: [^\n]*other\.strobe[^\n]*\n", result.stderr)
    seen = [strobe("report", "-f", "json", capture).json()["functions"] for capture in (whole, out)]
    assert seen[0] == seen[1] and seen[0] != []


def test_a_full_disk(any_python, script, tmp_path):
    """A limit on the file's size set while it is being written stands for it: the next chunk does not fit."""
    capture = tmp_path / "full.strobe"
    with Target(any_python, script(SIGNALLED)) as target:
        with attached(target, "--capture", capture, folder=tmp_path) as running:
            size = await_size(capture, await_size(capture, 0))
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (size + 20, size + 20))
            result = running.finish()
    assert result.returncode == harness.FAILED
    assert re.fullmatch(r"strobe: [^\n]*full\.strobe[^\n]*\n", result.stderr), result.stderr
    seen = strobe("report", "-f", "json", capture)
    assert seen.returncode == DAMAGED
    assert function_of(json.loads(seen.stdout), "work")["total_samples"] > 0


def test_names_of_captures(any_python, script, tmp_path):
    with Target(any_python, script(SIGNALLED, "some program.py")) as target:
        kept = strobe("attach", "-d", "0.05", target.pid, cwd=tmp_path)
        assert kept.returncode == harness.OK
        (capture,) = tmp_path.glob("*.strobe")
        assert re.fullmatch(rf"some.*-{target.pid}\.strobe", capture.name)
        capture.unlink()
        quiet = strobe("attach", "-d", "0.05", "--quiet", "--no-capture", target.pid, cwd=tmp_path)
        assert (quiet.returncode, quiet.stderr) == (harness.OK, "")
        assert list(tmp_path.glob("*.strobe")) == []
        # Nor is anything left when strobe cannot tidy up.
        (tmp_path / "temporary").mkdir()
        environment = dict(os.environ, TMPDIR=str(tmp_path / "temporary"))
        with subprocess.Popen(
            [harness.STROBE, "attach", "--no-capture", str(target.pid)], stderr=subprocess.PIPE, env=environment
        ) as strobe_process:
            assert b"sampling process" in strobe_process.stderr.readline()
            strobe_process.kill()
        assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    "arguments,name", [(["folder/"], "folder"), (["."], "python"), (["-c", "pass"], "python3"), ([".hid den.py"], "hid")]
)
def test_names_of_captures_are_files_beside_the_user(any_python, tmp_path, arguments, name):
    """As shells complete a folder, and without what would hide the capture or look like an option."""
    (tmp_path / "folder").mkdir()
    for script in "folder/__main__.py", "__main__.py", ".hid den.py":
        (tmp_path / script).write_text("pass")
    (tmp_path / "python3").symlink_to(any_python.path)
    environment = dict(os.environ, PATH=f"{tmp_path}:{os.environ['PATH']}")
    result = strobe("run", "--quiet", *arguments, cwd=tmp_path, env=environment)
    assert result.returncode == harness.OK, result.stderr
    (capture,) = tmp_path.rglob("*.strobe")
    assert capture.parent == tmp_path and re.fullmatch(rf"{name}-\d+\.strobe", capture.name), capture


def test_an_output_under_another_name(any_python, tmp_path):
    """A descriptor's file is written to, a link's is replaced; neither name is."""
    assert strobe("run", "--capture", "one", "--", any_python.path, "-c", "1", cwd=tmp_path).returncode == harness.OK
    command = [harness.STROBE, "report", "one", "-f", "json"]
    with open(tmp_path / "log", "ab") as log:
        log.write(b"before\n")
        log.flush()
        subprocess.run([*command, "-o", "/dev/fd/1"], stdout=log, cwd=tmp_path, check=True, timeout=harness.TIMEOUT_S)
    assert json.loads((tmp_path / "log").read_text().removeprefix("before\n"))["strobe"] == 1
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "report.json").write_text("before")
    (tmp_path / "link.json").symlink_to("folder/report.json")
    subprocess.run([*command, "-o", "link.json"], cwd=tmp_path, check=True, timeout=harness.TIMEOUT_S)
    assert (tmp_path / "link.json").is_symlink() and len(list(tmp_path.rglob("*"))) == 5
    assert json.loads((tmp_path / "folder" / "report.json").read_text())["strobe"] == 1


def test_an_older_capture_outlives_what_does_not_begin(tmp_path):
    """It is not emptied before there is something to put in its place."""
    capture = tmp_path / "older.strobe"
    capture.write_bytes(b"precious")
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as cat:
        for arguments in (
            ["attach", "--capture", capture, ended.pid],
            ["attach", "--capture", capture, cat.pid],
            ["run", "--capture", capture, "--", "no-such-command"],
            ["run", "--no-agent", "--capture", capture, "--", "no-such-command"],
            ["run", "--capture", capture, "--", "/bin/true"],
            ["run", "--no-agent", "--capture", capture, "--", "/bin/true"],
            ["merge", tmp_path / "none.strobe", "-o", capture],
            ["report", "-o", capture, tmp_path / "none.strobe"],
            ["diff", "-o", capture, tmp_path / "none.strobe", tmp_path / "none.strobe"],
        ):
            result = strobe(*arguments, cwd=tmp_path)
            assert re.fullmatch(r"strobe: [^\n]+\n", result.stderr), (arguments, result)
            assert capture.read_bytes() == b"precious", arguments
        cat.stdin.close()
    assert list(tmp_path.iterdir()) == [capture]


def test_an_older_capture_is_replaced(any_python, script, tmp_path):
    capture = tmp_path / "older.strobe"
    capture.write_bytes(b"long gone" * 100_000)
    with Target(any_python, script(SIGNALLED)) as target:
        result = strobe("attach", "-d", "0.05", "--capture", capture, target.pid, cwd=tmp_path)
    assert result.returncode == harness.OK, result
    again = strobe("report", capture)
    assert (again.returncode, again.stdout) == (harness.OK, result.stdout)


def test_a_capture_that_cannot_be_made(any_python, tmp_path):
    with Target(any_python, "ready.py") as target:
        result = strobe("attach", "--capture", tmp_path / "no" / "x.strobe", target.pid, cwd=tmp_path)
    assert_refuses(result, harness.FAILED)
