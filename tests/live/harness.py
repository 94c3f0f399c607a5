"""What every live test needs: a target that is where it says it is, and strobe to look at it."""

import json
import os
import re
import select
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TARGETS = HERE / "targets"
STROBE = Path(os.environ.get("STROBE") or HERE.parent.parent / "build" / "strobe").resolve()
# Under AddressSanitizer memory and time are not what they are else.
SANITIZED = "sanitize" in str(STROBE)

# From exit_codes in the specification of the command line.
OK, FAILED, USAGE, NO_PROCESS, NO_PERMISSION, NOT_PYTHON = range(6)

# The kernel tells root of each birth, but not in a container (drivers/connector/cn_proc.c: the first user and PID
# namespaces, whose numbers are in include/uapi/linux/nsfs.h and proc_ns.h). Else /proc is searched every 50 ms.
FIRST_NAMESPACES = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
TOLD_OF_BIRTHS = os.geteuid() == 0 and all(
    os.readlink(f"/proc/self/ns/{kind}") == name for kind, name in FIRST_NAMESPACES.items()
)
# So late is a child seen, or that and a tick of its clock.
BIRTH_S = 0 if TOLD_OF_BIRTHS else 0.06
# CPU time of a process from its own last word to its end: a debug build of 3.11 finalises for 14 to 25 ms without strobe
# too, depending on who shares the core.
ENDING_S = 0.05
# How long a program may take to say something: far more than it takes on a busy machine.
TIMEOUT_S = int(os.environ.get("TARGET_TIMEOUT_S") or 60)

# LeakSanitizer fails under a tracer.
TRACED = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
SANITIZER_REPORT = re.compile(r"ERROR: \w+Sanitizer|runtime error:|WARNING: \w+Sanitizer")


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str

    def json(self):
        assert self.returncode == OK, f"strobe exited with {self.returncode}: {self.stderr}"
        return json.loads(self.stdout)


def strobe(*arguments, binary=STROBE, env=None, timeout=60, **popen_options):
    """Runs strobe and returns what it said. A sanitizer's report fails the test, whatever it expected."""
    environment = dict(os.environ if env is None else env)
    # An exit status that is none of strobe's own, no continuing after undefined behaviour; and what else is preloaded may
    # come before AddressSanitizer.
    environment.setdefault("ASAN_OPTIONS", "exitcode=99:verify_asan_link_order=0")
    environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
    finished = subprocess.run(
        [str(binary), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        timeout=timeout,
        **popen_options,
    )
    result = Result(finished.returncode, finished.stdout.decode(), finished.stderr.decode())
    if SANITIZER_REPORT.search(result.stderr):
        pytest.fail("sanitizer report:\n" + result.stderr)
    return result


def dump(target, *options):
    """`strobe dump --json` of a Target, parsed."""
    return strobe("dump", "--json", *options, target.pid).json()


def assert_refuses(result, status):
    """strobe exited with `status`, printed nothing, and said why in one line."""
    assert result.returncode == status, result
    assert result.stdout == ""
    assert re.fullmatch(r"strobe: [^\n]+\n", result.stderr), result.stderr


class TargetEnded(Exception):
    pass


class Target:
    """A Python program under test, from its start to its certain end.

    `script` is the name of a file in targets/ or a path. Creating one waits until the program has written a line to
    its standard output; the line, parsed when it is JSON, is `said`. Use it in a `with`.
    """

    def __init__(self, python, script, *arguments, options=(), timeout_s=TIMEOUT_S, **popen_options):
        path = TARGETS / script
        command = [getattr(python, "path", python), *options, str(path), *map(str, arguments)]
        environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        environment.update(popen_options.pop("extra_env", {}))
        self.command = command
        self.timeout_s = timeout_s
        self.unread = b""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            **popen_options,
        )
        self.pid = self.process.pid
        try:
            self.said = self.read()
        except BaseException:
            self.close()
            raise

    def read_line(self):
        """The next line of the program's standard output, without its end. Waits for it."""
        deadline_s = time.monotonic() + self.timeout_s
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.unread:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                raise TimeoutError(f"{self.command} said nothing for {self.timeout_s} s")
            part = os.read(descriptor, 1 << 16)
            if not part:
                raise TargetEnded(f"{self.command} ended with {self.process.wait()}")
            self.unread += part
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode()

    def read(self):
        """As read_line, but parsed when it is JSON."""
        line = self.read_line()
        return json.loads(line) if line[:1] in ("{", "[") else line

    def send(self, line=""):
        """Writes a line to the program's standard input."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def _stat(self, native_id):
        """The fields of a thread's stat file, from its state on."""
        return Path(f"/proc/{self.pid}/task/{native_id}/stat").read_text().rpartition(")")[2].split()

    def _await_stat(self, native_id, holds):
        """Waits until holds(stat) is true. The kernel offers no event for this, so it is asked again and again."""
        deadline_s = time.monotonic() + self.timeout_s
        while not holds(stat := self._stat(native_id)):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"thread {native_id} of {self.command}: {stat}")
            os.sched_yield()

    def await_sleep(self, native_id):
        """Waits until the kernel says that the thread sleeps."""
        self._await_stat(native_id, lambda stat: stat[0] == "S")

    def await_cpu_time(self, native_id, ticks):
        """Waits until the thread has used this much more CPU time (user and system) than now."""

        def used(stat):
            return int(stat[11]) + int(stat[12])

        end = used(self._stat(native_id)) + ticks
        self._await_stat(native_id, lambda stat: used(stat) >= end)

    def close(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def read_wait_ns(pid):
    """How long the process's first thread has waited for a processor so far: as long it stood where it was, and whichever
    stack that was is seen very often."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])


def thread_of(dumped, thread_id):
    """The one thread of a dump with this Python thread id."""
    found = [thread for thread in dumped["threads"] if thread["thread_id"] == thread_id]
    assert len(found) == 1, f"thread {thread_id} is there {len(found)} times in {dumped}"
    return found[0]


def in_utf8(text):
    """Text as strobe shows it: what UTF-8 cannot hold (lone surrogates) is escaped."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def assert_same_frames(python, told, seen):
    """`seen`, the frames of a dump, are those the target told of itself: same number, same order, same places."""
    keys = ["function", "file", "line"]
    if python.at_least(3, 11):
        keys += ["qualname", "end_line", "column", "end_column"]
    expected = [{key: in_utf8(v) if isinstance(v := frame[key], str) else v for key in keys} for frame in told]
    actual = [{key: frame.get(key) for key in keys} if "error" not in frame else frame for frame in seen]
    assert actual == expected


def assert_same_threads(python, told, dumped):
    """Every thread that the target told of is in the dump, with the same identity and frames; and no other is."""
    assert {thread["thread_id"] for thread in dumped["threads"]} == {thread["thread_id"] for thread in told}
    for thread in told:
        seen = thread_of(dumped, thread["thread_id"])
        assert seen["native_id"] == thread["native_id"]
        assert seen["name"] == in_utf8(thread["name"])
        assert_same_frames(python, thread["frames"], seen["frames"])


def copy_for_everyone(path, folder):
    """A copy of an executable that every user can reach and run."""
    copy = Path(folder) / Path(path).name
    shutil.copy2(path, copy)
    copy.chmod(0o755)
    return copy
