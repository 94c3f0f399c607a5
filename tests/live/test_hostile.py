"""Targets that are damaged, or made to be expensive: whoever looks at them comes to an end."""

import resource

import harness
import pytest
from harness import OK, Target, assert_same_frames, dump, strobe

# Far more than the looks take, far less than a list without an end.
TIMEOUT_S = harness.TIMEOUT_S
MEMORY_BYTES = 2 << 30
# A sanitizer's shadow takes more than this.
LIMITED = ("dump", "attach") if not harness.SANITIZED else ()


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def look(target, command, *options, folder):
    limits = {"preexec_fn": limit_memory} if command in LIMITED else {}
    result = strobe(command, *options, target.pid, cwd=folder, timeout=TIMEOUT_S, **limits)
    assert result.returncode == OK, result
    return result


def look_at_ring(python, length, folder):
    with Target(python, "falsified.py", length) as target:
        assert "falsified.py" in look(target, "dump", folder=folder).stdout
        sampled = look(target, "attach", "-d", 0.2, "--idle", "-f", "json", "--no-capture", folder=folder).json()
        assert sampled["samples"]["taken"] > 0
        return sampled["threads"]


@pytest.mark.parametrize("length", [0, 1], ids=["one", "two"])
def test_threads_in_a_ring(python, length, tmp_path):
    """A thread that is followed by itself, and one that is by a copy of itself which it follows."""
    assert 1 <= len(look_at_ring(python, length, tmp_path)) <= 2


def test_more_threads_than_are_sampled(any_python, tmp_path):
    assert 1000 < len(look_at_ring(any_python, 50000, tmp_path)) <= 1 << 14


@pytest.mark.parametrize("options", [[], ["--blocking"], ["--locals"]], ids=" ".join)
def test_a_frame_that_cannot_be_read(python, options):
    """It is shown as such, and the others are as they are."""
    with Target(python, "unreadable.py") as target:
        seen = dump(target, *options)["threads"][0]
        shown = strobe("dump", *options, target.pid)
    told = target.said["threads"][0]["frames"]
    place = [frame["function"] for frame in told].index("damaged")
    assert seen["frames"][place] == {"error": "unreadable"} and not seen["consistent"]
    assert_same_frames(python, told[:place] + told[place + 1 :], seen["frames"][:place] + seen["frames"][place + 1 :])
    lines = [line for line in shown.stdout.splitlines() if line.startswith("    ") and line[4] != " "]
    assert lines[place] == "    (a frame that could not be read: unreadable)"
    assert len(lines) == len(told)
