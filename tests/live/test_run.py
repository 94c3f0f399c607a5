"""`strobe run`, with the agent and without: the program must not notice strobe, and strobe must see the program."""

import json
import os
import re
import signal
import subprocess

import harness
import pytest
from harness import STROBE, strobe

CAPTURE_SAID = re.compile(r"strobe: the capture is in (\S+) ")

BURN = """
import sys, time
def burn_here(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        sum(range(500))
burn_here(0.15)
"""


WAYS = {"agent": [], "outside": ["--no-agent"], "blocking": ["--no-agent", "--blocking"]}


@pytest.fixture(params=WAYS)
def way(request):
    """The options that say how the program is sampled."""
    return WAYS[request.param]


@pytest.fixture
def run(way):
    def run_it(*arguments, **options):
        return strobe("run", *way, *arguments, **options)

    return run_it


@pytest.fixture
def bare(any_python, run):
    """Runs `python -c CODE` under strobe, with no capture and no words of strobe's but the report."""

    def run_code(code, *arguments, **options):
        return run("--no-capture", "--quiet", "--", any_python.path, "-c", code, *arguments, **options)

    return run_code


@pytest.fixture
def path_with(tmp_path, any_python):
    """An environment in which `python3` is any_python."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(any_python.path)
    return dict(os.environ, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")


def test_a_script_is_sampled(python, run, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BURN)
    report = tmp_path / "report.json"
    result = run("-r", 500, "-o", report, "--", python.path, script, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    document = json.loads(report.read_text())
    assert document["mode"] == "run"
    assert document["python"] == python.version_text
    assert document["command"][-1] == str(script)
    burned = [f for f in document["functions"] if f["function"] == "burn_here" and f["path"] == str(script)]
    assert len(burned) == 1 and burned[0]["samples"] > 0, document["functions"]
    # The capture has the script's name, and gives the same report.
    capture = CAPTURE_SAID.search(result.stderr).group(1)
    assert capture == f"script-{document['pid']}.strobe"
    assert strobe("report", "-f", "json", capture, cwd=tmp_path).json() == document


# Up to 3.9, `burn` has the address of code that the interpreter's start ran and dropped.
IN_THE_PLACE_OF_OTHERS = """import os, sys, time
def burn(s):
    e=time.thread_time()+s
    while time.thread_time()<e: pass
before = time.process_time()
burn(0.2)
"""


def test_no_code_is_taken_for_another(python, tmp_path):
    (tmp_path / "x.py").write_text(IN_THE_PLACE_OF_OTHERS)
    command = ["run", "--no-agent", "-r", 1000, "--no-capture", "-o", "report.json", "--", python.path, "x.py"]
    assert strobe(*command, cwd=tmp_path).returncode == 0
    files = json.loads((tmp_path / "report.json").read_text())["files"]
    (lines,) = [file["lines"] for file in files if file["path"] == str(tmp_path / "x.py")]
    samples = {row["line"]: row["samples"] for row in lines}
    assert samples[4] > 0 and samples.get(6, 0) <= 3 + 0.05 * samples[4], samples


@pytest.mark.parametrize("code,status", [("0", 0), ("3", 3), ("255", 255), ("'words'", 1), ("None", 0)])
def test_exit_status(bare, code, status):
    result = bare(f"import sys; sys.exit({code})")
    assert result.returncode == status
    assert ("words\n" in result.stderr) == (status == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_death_by_a_signal(any_python, run, number, tmp_path):
    code = f"import os, time\nt = time.time()\nwhile time.time() - t < 0.1: pass\nos.kill(os.getpid(), {int(number)})"
    result = run("--no-capture", "--", any_python.path, "-c", code, cwd=tmp_path)
    assert result.returncode == 128 + number
    assert not list(tmp_path.glob("*.strobe"))


def test_streams_are_the_programs_own(any_python, way):
    code = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1]); sys.stderr.write('own words\\n')"
    data = bytes(range(256)) * 1000
    done = subprocess.run(
        [STROBE, "run", *way, "--no-capture", "--", any_python.path, "-c", code],
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
        # Without a buffer Python itself says how much of it a pipe took, and a stop makes a pipe take less.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    assert done.returncode == 0
    assert done.stdout == data[::-1]
    assert b"own words\n" in done.stderr


def test_the_table_goes_to_standard_error(any_python, run, tmp_path):
    result = run("--quiet", "--no-capture", "--", any_python.path, "-c", BURN, cwd=tmp_path)
    assert result.stdout == ""
    assert "burn_here" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_signal_dispositions_and_mask_are_inherited(run):
    """strobe itself ignores SIGPIPE and blocks what it passes on; the program must have what strobe was given."""
    command = ["grep", "^Sig[BIC]", "/proc/self/status"]
    bare = subprocess.run(command, stdout=subprocess.PIPE, timeout=60).stdout.decode()
    assert run("--", *command).stdout == bare


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_signals_sent_to_strobe_reach_the_program(any_python, number, way):
    # Not by print(): a handler that comes while it flushes may not call it again.
    code = f"""
import os, signal, sys
def handle(number, frame):
    os.write(1, b'got %d\\n' % number)
    sys.exit(9)
signal.signal({int(number)}, handle)
os.write(1, b'ready\\n')
while True: sum(range(1000))
"""
    with subprocess.Popen(
        [STROBE, "run", *way, "--no-capture", "--", any_python.path, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(number)
        out, _ = running.communicate(timeout=harness.TIMEOUT_S)
    assert out == b"got %d\n" % number
    assert running.returncode == 9


def test_forms_use_the_python3_of_the_path(run, path_with, any_python, tmp_path):
    say = "import json, sys; print(json.dumps([list(sys.version_info[:3]), sys.argv]))\n"
    (tmp_path / "mod.py").write_text(say)
    for form, argv0 in (
        (["mod.py"], "mod.py"),
        (["-m", "mod"], str(tmp_path / "mod.py")),
        (["-mmod"], str(tmp_path / "mod.py")),
        (["-c", say], "-c"),
    ):
        result = run("--no-capture", *form, "-r", "--", "x", "--help", env=path_with, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout) == [list(any_python.version), [argv0, "-r", "--", "x", "--help"]]


def test_a_shell_that_becomes_python_is_sampled(any_python, run, tmp_path):
    (tmp_path / "script.py").write_text(BURN)
    result = run("--no-capture", "--", "sh", "-c", f"exec {any_python.path} script.py", cwd=tmp_path)
    assert result.returncode == 0
    assert "burn_here" in result.stderr


def test_a_capture_that_cannot_be_written(any_python, run, tmp_path):
    """Nothing is run, and what stands in the way stays: it may be a device."""
    full = tmp_path / "full.strobe"
    full.symlink_to("/dev/full")
    result = run("--capture", full, "--", any_python.path, "-c", "print(1)", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "strobe: cannot write the capture: No space left on device\n"
    assert full.is_symlink()
    result = run("--", any_python.path, "-c", "print(1)", cwd="/proc/self")
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"strobe: cannot write \S+: .* \(--capture FILE puts it elsewhere, .*\)\n", result.stderr)


def test_a_report_never_replaces_its_capture(run, tmp_path):
    """Neither before the program runs, nor when a report is made later, under whatever name."""
    line = r"strobe: \S+ is the capture, which a report would replace: give -o another name\n"
    refused = run("--capture", "one", "-o", "./one", "--", "touch", "began", cwd=tmp_path)
    assert refused.returncode == harness.USAGE and re.fullmatch(line, refused.stderr), refused
    assert list(tmp_path.iterdir()) == []
    assert run("--capture", "one", "-o", os.devnull, "--", "python3", "-c", BURN, cwd=tmp_path).returncode == 0
    before = (tmp_path / "one").read_bytes()
    (tmp_path / "link.json").symlink_to("one")
    for output in "one", "link.json":
        for command in ("report", "one"), ("diff", "one", "one"):
            result = harness.strobe(*command, "-o", output, cwd=tmp_path)
            assert result.returncode == harness.USAGE and re.fullmatch(line, result.stderr), result
            assert (tmp_path / "one").read_bytes() == before


def test_a_dash_is_standard_output(any_python, run, tmp_path):
    result = run("--no-capture", "--quiet", "-o", "-", "--", any_python.path, "-c", BURN, cwd=tmp_path)
    assert result.returncode == 0 and "burn_here" in result.stdout, result.stderr
    assert result.stderr == "" and list(tmp_path.iterdir()) == []


def test_what_is_not_python(run, tmp_path):
    result = run("--", "sh", "-c", "echo out; exit 4", cwd=tmp_path)
    assert result.returncode == 4
    assert result.stdout == "out\n"
    assert re.fullmatch(r"strobe: nothing was sampled[^\n]*\n", result.stderr), result.stderr
    assert list(tmp_path.iterdir()) == []


def test_commands_that_cannot_be_started(run, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for command, status in (("no-such-command", 127), ("no\nsuch\33[31mcommand", 127), (str(file), 126)):
        result = run("--", command, cwd=tmp_path)
        assert result.returncode == status
        assert re.fullmatch(r"strobe: [^\n]+\n", result.stderr), result.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_usage(tmp_path):
    for arguments in (
        ["run"],
        ["run", "--no-agent"],
        ["run", "--no-agent", "--no-such", "x.py"],
        ["run", "--mode", "cpu", "x.py"],
        ["run", "--blocking", "x.py"],
        ["run", "--no-agent", "--clock", "perf", "x.py"],
        ["run", "--no-agent", "--on-demand", "x.py"],
        ["run", "--no-agent", "--memory", "exact", "x.py"],
        ["run", "--capture", "x", "--no-capture", "x.py"],
    ):
        harness.assert_refuses(strobe(*arguments, cwd=tmp_path), harness.USAGE)
    assert "--no-agent" in strobe("run", "--blocking", "x.py").stderr


def test_a_command_in_the_place_of_a_script(tmp_path):
    for command in ("sh", "/bin/sh"):
        refused = strobe("run", command, "x.py", cwd=tmp_path)
        harness.assert_refuses(refused, harness.USAGE)
        assert "put -- before it" in refused.stderr
    (tmp_path / "sh").write_text("print('a script')")
    assert strobe("run", "--no-capture", "sh", cwd=tmp_path).stdout == "a script\n"


def test_sampling_ends_before_the_program(any_python, run):
    result = run("--no-capture", "-d", "0.05", "--", any_python.path, "-c", BURN + "print('end')")
    assert result.returncode == 0
    assert result.stdout == "end\n"


def test_help_fits_one_screen():
    lines = strobe("--help").stdout.splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 80
    for command in ("run", "attach"):
        assert max(map(len, strobe(command, "--help").stdout.splitlines())) <= 90
