"""`strobe doctor`: what it says of this machine, its interpreters and one process is held against what these say."""

import os
import re
import select
import subprocess
from pathlib import Path

import harness
import interpreters
import pytest
from harness import Target, assert_refuses, strobe

NOBODY = 65534


def findings(text):
    """[(mark, what)]"""
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    found = [re.fullmatch(r"  (ok  |no  |note)  (.+)", line) for line in lines]
    assert all(found), text
    return [(match[1].strip(), match[2]) for match in found]


def section(text, begin):
    """The part of the output under the headline that begins so."""
    parts = [part for part in text.split("\n\n") if part.startswith(begin)]
    assert len(parts) == 1, text
    return findings(parts[0])


def doctor(*arguments, **options):
    result = strobe("doctor", *arguments, **options)
    assert result.returncode == harness.OK, result
    assert result.stderr == ""
    return result.stdout


def with_path(*folders):
    return dict(os.environ, PATH=":".join(map(str, folders)))


def test_this_machine():
    told = dict((what, mark) for mark, what in section(doctor(), "strobe "))
    release = os.uname().release
    assert doctor().startswith(f"strobe {strobe('--version').stdout.split()[1]} on Linux {release}, {os.uname().machine}\n")
    # The tests themselves could not run where this is not so.
    assert told["memory is read with process_vm_readv"] == "ok"
    assert told["threads can be stopped for a look (--blocking)"] == "ok"
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    assert any(f"perf_event_paranoid is {paranoid};" in what for what in told)


def test_interpreters(python):
    told = section(doctor(env=with_path(os.path.dirname(python.path))), "Interpreters")
    kind = ", free-threaded" if python.free_threaded else ""
    assert ("ok", f"{python.path}: Python {python.version_text}{kind}") in told


def test_interpreters_too_old(old_python):
    told = section(doctor(env=with_path(os.path.dirname(old_python.path))), "Interpreters")
    # Those before 3 write it to standard error.
    assert ("no", f"{old_python.path}: Python {old_python.version_text}; strobe reads 3.8 and later") in told


@pytest.mark.parametrize(
    "says, mark, remark",
    [
        ("echo 'Python 3.99.1+ (main, Jan 1 2040) [GCC 99]'", "note", "Python 3.99.1+, newer than strobe knows"),
        ("echo 'Python 3.10.14 (abc) [PyPy 7.3.17 with GCC 10.2.1]'", "no", "it is no CPython"),
        ("exit 127", "no", "it does not run"),
        ("head -c 100000 /dev/zero", None, None),
        ("kill -9 $$", "no", "it does not run"),
        ("exec >&- 2>&-; exec sleep 1000", "no", "it does not run"),
    ],
    ids=["newer", "pypy", "fails", "babbles", "dies", "goes on"],
)
def test_strange_interpreters(tmp_path, says, mark, remark):
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{says}\n")
    program.chmod(0o755)
    (tmp_path / "python").symlink_to(program)
    (tmp_path / "python3-config").symlink_to(program)
    told = section(doctor(env=with_path(tmp_path, "relative", "/nowhere", tmp_path)), "Interpreters")
    if mark is None:
        assert len(told) <= 1
        return
    assert len(told) == 1
    assert told[0][0] == mark
    assert told[0][1].startswith(f"{program}: {remark}")


def test_no_interpreter(tmp_path):
    assert [mark for mark, _ in section(doctor(env=with_path(tmp_path)), "Interpreters")] == ["note"]


def test_the_agent():
    ((mark, what),) = section(doctor(), "Agent")
    assert (mark == "ok") == os.path.exists(harness.STROBE.parent / "libstrobe-agent.so")
    assert "libstrobe-agent.so" in what


def test_a_process(python, tmp_path):
    with Target(python, "threads.py") as target:
        told = section(doctor(target.pid, env=with_path(tmp_path)), f"Process {target.pid}: {python.path} ")
        threads = len(target.said["threads"])
    kind = ", free-threaded" if python.free_threaded else ""
    assert told[0] == ("ok", f"it runs CPython {python.version_text}{kind}")
    assert any(what.startswith(f"Python threads: {threads}; ") for mark, what in told if mark == "ok"), told
    assert any("qualified names" in what for _, what in told) != python.at_least(3, 11)
    assert any("asyncio" in what for _, what in told) != python.at_least(3, 14)
    assert all(mark != "no" for mark, _ in told)


def test_a_process_that_is_traced(any_python, tmp_path):
    with Target(any_python, "ready.py") as target:
        command = [harness.STROBE, "attach", "--blocking", "--no-capture", str(target.pid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as tracer:
            assert select.select([tracer.stderr], [], [], harness.TIMEOUT_S)[0]
            told = section(doctor(target.pid, env=with_path(tmp_path)), "Process ")
            tracer.kill()
    assert [what for mark, what in told if mark == "no" and f"process {tracer.pid}," in what]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace")
def test_a_process_in_a_container(any_python, tmp_path):
    command = ["unshare", "--pid", "--fork", "--kill-child", any_python.path, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as outer:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        while not (child := children.read_text().split()) or strobe("dump", child[0]).returncode != harness.OK:
            os.sched_yield()
        told = section(doctor(child[0], env=with_path(tmp_path)), "Process ")
        outer.kill()
    assert ("note", "it lives in a container, where its id is 1") in told


def test_refusals():
    for pid, status in ((999999999, harness.NO_PROCESS), (os.getppid(), None)):
        result = strobe("doctor", pid, env=with_path())
        assert result.returncode == status or status is None
        assert result.returncode == 0 or re.fullmatch(r"strobe: [^\n]+\n", result.stderr)
    with subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE) as shell:
        result = strobe("doctor", shell.pid, env=with_path())
        shell.stdin.close()
    assert result.returncode == harness.NOT_PYTHON
    assert f"process {shell.pid} is not Python" in result.stderr
    for arguments in (["x"], ["1", "2"], ["--no-such-option"]):
        assert_refuses(strobe("doctor", *arguments), harness.USAGE)
    assert "PID" in strobe("doctor", "--help").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_privileges(tmp_path_factory, any_python):
    folder = tmp_path_factory.mktemp("public")
    for parent in (folder, *folder.parents[:2]):
        os.chmod(parent, 0o755)
    binary = harness.copy_for_everyone(harness.STROBE, folder)
    nobody = {"binary": binary, "user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/", "env": with_path()}
    result = strobe("doctor", **nobody)
    told = section(result.stdout, "strobe ")
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except FileNotFoundError:
        scope = 0
    assert result.returncode == (harness.OK if scope == 0 else harness.NO_PERMISSION)
    assert (scope == 0) == (("ok", "your own processes can be read") in told)
    assert any("run as root" in what for _, what in told)
    with Target(any_python, "ready.py") as target:
        result = strobe("doctor", target.pid, **nobody)
    assert result.returncode == harness.NO_PERMISSION
    assert "it belongs to user 0" in result.stderr


def test_all_interpreters_are_of_this_machine():
    """The search is the tests' own, whatever PATH says."""
    folders = {os.path.dirname(interpreter.path) for interpreter in interpreters.supported()}
    told = section(doctor(env=with_path(*folders)), "Interpreters")
    assert {i.path for i in interpreters.supported()} <= {what.partition(":")[0] for mark, what in told if mark == "ok"}
