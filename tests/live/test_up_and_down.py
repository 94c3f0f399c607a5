"""Deep stacks that are seen at one depth, then at another: what is remembered of them must not mix, in the capture
neither. And a look is hardly more than one read."""

import json
import re
import shutil
import subprocess

import pytest
from harness import STROBE, TRACED, Target, read_wait_ns, strobe

DEPTH, ROUNDS = 60, 20
RATE_HZ = 20_000
SECONDS = 0.5
# Of this time the process may have waited so much to run, and so many looks there must be, for it to be seen at several depths:
# as long as it waits it is at one.
MAX_WAIT, MIN_LOOKS = 0.25, 200
LOOKS = ["--measure", "samples"]
# Before 3.11 callers are read one by one.
BLOCKING_RATE_HZ = 1000

# What a look may cost on average, and what is asked for besides in each millisecond. The aim is 1.5 a look. strace makes
# each read last some 30 microseconds, in which the program goes on by several calls, so that what the read left open is asked
# for too late, and one reads again: 1.2 to 1.5 were measured, and 3 would be what a look is to cost that knows nothing of the
# one before. Besides, in half a second: some 1500 when the code is first seen, 600 to see whether it is still the same,
# up to 2000 for the thread's state.
READS_PER_SAMPLE = 2
READS_PER_MS = 10


def is_possible(names):
    """Whether a stack, from the module's frame on, is the beginning of one of the chains, or one of them with the leaf."""
    chain = names[:-1] if names[-1:] == ["leaf"] else names
    letter = chain[0][0] if chain else "p"
    if names[-1:] == ["leaf"] and len(chain) != DEPTH:
        return False
    return letter in "pq" and chain == [f"{letter}{i}" for i in range(len(chain))]


def collapsed_stacks(path):
    """(names of the functions from the outermost on, count) of a report."""
    for line in path.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        names = [re.sub(r":\d+$", "", frame).rpartition(":")[2] for frame in stack.split(";")]
        assert names[0] == "<module>", line
        yield names[1:], int(count)


@pytest.mark.parametrize("blocking", [False, True], ids=["", "blocking"])
def test_depths_do_not_mix(python, tmp_path, blocking):
    """Non-blocking looks at linked frames are judged elsewhere (test_sampling_truth.py)."""
    if not blocking and not python.at_least(3, 11):
        pytest.skip("frames that are not in one piece are judged by their shares")
    report = tmp_path / "report"
    options = ["--blocking", "-r", BLOCKING_RATE_HZ] if blocking else ["-r", RATE_HZ]
    with Target(python, "up_and_down.py", DEPTH, ROUNDS) as target:
        wait_ns = read_wait_ns(target.pid)
        options += ["-d", SECONDS, "--all", "-f", "collapsed", *LOOKS, "-o", report]
        done = strobe("attach", *options, target.pid, cwd=tmp_path)
        wait_ns = read_wait_ns(target.pid) - wait_ns
        assert done.returncode == 0, done
    stacks = list(collapsed_stacks(report))
    impossible = [(count, names[-5:]) for names, count in stacks if not is_possible(names)]
    assert sum(count for count, _ in impossible) <= sum(count for _, count in stacks) / 1000, impossible[:5]
    if sum(count for _, count in stacks) >= MIN_LOOKS and wait_ns < MAX_WAIT * SECONDS * 1e9:
        depths = {len(names) for names, _ in stacks}
        # It was seen on its way, too.
        assert max(depths) > DEPTH / 2 and len(depths) > 3


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_a_look_is_one_read(python, tmp_path):
    if not python.at_least(3, 11):
        pytest.skip("frames are not in one piece")
    calls, report = tmp_path / "calls", tmp_path / "report.json"
    options = ["-r", RATE_HZ, "-d", SECONDS, "-f", "json", "-o", report]
    with Target(python, "up_and_down.py", DEPTH, ROUNDS) as target:
        command = ["strace", "-f", "-e", "trace=pread64,process_vm_readv", "-o", calls, STROBE, "attach", *options]
        command = [*map(str, command), str(target.pid)]
        subprocess.run(command, check=True, timeout=60, capture_output=True, env=TRACED, cwd=tmp_path)
    samples = json.loads(report.read_text())["samples"]["taken"]
    reads = sum(1 for line in calls.open() if "pread64(" in line or "process_vm_readv(" in line)
    # On a busy machine there are few, and the program is as good as stopped.
    assert samples > 0
    assert reads <= samples * READS_PER_SAMPLE + SECONDS * 1000 * READS_PER_MS
