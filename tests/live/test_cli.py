"""The command line: what it says, how it refuses, and with which exit status."""

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import harness
import interpreters
import pytest
from harness import Target, assert_refuses, strobe

NOBODY = 65534
PF_KTHREAD = 0x00200000  # include/linux/sched.h


def any_python():
    return interpreters.newest()


def test_version():
    result = strobe("--version")
    assert result.returncode == harness.OK
    assert re.fullmatch(r"strobe \d+\.\d+\.\d+\n", result.stdout)


def test_help_fits_one_screen():
    result = strobe("--help")
    assert result.returncode == harness.OK
    lines = result.stdout.splitlines()
    assert 5 < len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert "dump" in result.stdout


def test_help_of_dump_names_every_option():
    result = strobe("dump", "--help")
    assert result.returncode == harness.OK
    for option in ("--json", "--locals", "--locals-chars", "--async", "--blocking"):
        assert option in result.stdout
    assert "128" in result.stdout  # the default of --locals-chars
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["--no-such-option"],
        ["dump"],
        ["dump", "--no-such-option", "1"],
        ["dump", "not-a-number"],
        ["dump", "12x"],
        ["dump", ""],
        ["dump", "0"],
        ["dump", "-5"],
        ["dump", "1", "2"],
        ["dump", "--locals-chars=many", "1"],
    ],
    ids=" ".join,
)
def test_usage_error(arguments):
    result = strobe(*arguments)
    assert result.returncode == harness.USAGE
    assert result.stdout == ""
    assert result.stderr.startswith("strobe: ")


@pytest.mark.parametrize("command", ["attach", "diff", "doctor", "dump", "merge", "report", "run"])
@pytest.mark.parametrize(
    "arguments, named", [(["-Xh", "1"], "-X"), (["-X"], "-X"), (["--xx=1", "1"], "--xx=1")], ids=["with another", "alone", "long"]
)
def test_a_refused_option_is_named(command, arguments, named):
    result = strobe(command, *arguments)
    assert result.returncode == harness.USAGE
    assert f"'{named}'" in result.stderr


def test_no_such_process():
    # A process of our own that is gone: its id is not given out again before all others were.
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    result = strobe("dump", ended.pid)
    assert_refuses(result, harness.NO_PROCESS)
    assert str(ended.pid) in result.stderr


def test_zombie():
    process = subprocess.Popen(["/bin/true"])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert_refuses(strobe("dump", process.pid), harness.NO_PROCESS)
    finally:
        process.wait()


def test_kernel_thread():
    try:
        stat = Path("/proc/2/stat").read_text()
    except FileNotFoundError:
        pytest.skip("no kernel threads to be seen here")
    if not int(stat.rpartition(")")[2].split()[6]) & PF_KTHREAD:
        pytest.skip("process 2 is no kernel thread here")
    assert_refuses(strobe("dump", 2), harness.NOT_PYTHON)


def test_shell():
    with subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE) as shell:
        result = strobe("dump", shell.pid)
        shell.stdin.close()
    assert_refuses(result, harness.NOT_PYTHON)


def test_python_too_old(old_python):
    with Target(old_python, "ready.py") as target:
        result = strobe("dump", target.pid)
    assert_refuses(result, harness.NOT_PYTHON)
    assert f"{old_python.version[0]}.{old_python.version[1]}" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_permission_denied(public_folder):
    binary = harness.copy_for_everyone(harness.STROBE, public_folder)
    with Target(any_python(), "ready.py") as target:
        result = strobe("dump", target.pid, binary=binary, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    assert_refuses(result, harness.NO_PERMISSION)
    assert "permission" in result.stderr
    assert str(target.pid) in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied_for_init():
    assert_refuses(strobe("dump", 1), harness.NO_PERMISSION)


def test_output_that_cannot_be_written(python):
    with Target(python, "ready.py") as target, open("/dev/full", "w") as full:
        finished = subprocess.run([harness.STROBE, "dump", str(target.pid)], stdout=full, stderr=subprocess.PIPE)
    assert finished.returncode == harness.FAILED
    assert finished.stderr.startswith(b"strobe: ")


def test_plain_dump_names_thread_and_frames_in_order(python):
    with Target(python, "functions.py") as target:
        result = strobe("dump", target.pid)
        told = target.said["threads"][0]
    assert result.returncode == harness.OK
    assert "\x1b" not in result.stdout, "colours only on a terminal"
    assert "MainThread" in result.stdout
    rest = result.stdout
    for frame in told["frames"]:
        assert frame["function"] in rest
        rest = rest.partition(frame["function"])[2]
    assert f"{told['frames'][-1]['line']}" in rest


def dump_on_terminal(pid, **environment):
    """What `strobe dump` writes to a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(environment, TERM="xterm-256color")
        os.execv(harness.STROBE, ["strobe", "dump", str(pid)])
    output = b""
    try:
        while part := os.read(terminal, 1 << 16):
            output += part
    except OSError:  # how Linux says that the other side was closed
        pass
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == harness.OK, output
    return output


def test_colours_on_a_terminal_unless_refused(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Target(any_python(), "functions.py") as target:
        assert b"\x1b[" in dump_on_terminal(target.pid)
        assert b"\x1b[" not in dump_on_terminal(target.pid, NO_COLOR="1")


def test_a_killed_target_never_crashes_strobe():
    """A process that dies during the look: any of the promised answers, but one of them."""
    for _ in range(10):
        with Target(any_python(), "functions.py") as target:
            looking = subprocess.Popen(
                [harness.STROBE, "dump", str(target.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            target.process.send_signal(signal.SIGKILL)
            _, errors = looking.communicate(timeout=60)
        assert looking.returncode in (harness.OK, harness.NO_PROCESS), errors


# ------------------------------------------------------------------------------------------------------- long names ---


def test_messages_about_long_names_keep_their_ends(tmp_path):
    """What is wrong, and what to do about it, stands behind the name."""
    long = "/" + "/".join(["folder" * 10] * 50) + "/name"
    capture = tmp_path / "x.strobe"
    capture.write_bytes(b"")
    for arguments, beginning, end in (
        (["report", long], "cannot read /folder", "/name: No such file or directory"),
        (["merge", long, long, "-o", tmp_path / "y"], "cannot read /folder", "/name: No such file or directory"),
        (["run", "--capture", long, "-c", "pass"], "cannot write /folder", "/name: No such file or directory"),
        (["run", "--no-capture", "--", "x" * 100_000], "xxx", "xxx: cannot start the command: File name too long"),
        (["report", "--" + long], "", "/name', or its value is missing (see 'strobe report --help')"),
        (["report", "x" * 100_000], "cannot read xxx", "xxx: File name too long"),
    ):
        result = strobe(*arguments)
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"strobe: {beginning}") and line.endswith(end), line
