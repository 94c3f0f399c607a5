"""Every code object of every interpreter's standard library, at every instruction: strobe's line tables are the
interpreter's."""

import re
import subprocess

from harness import STROBE, TARGETS

CHECKER = STROBE.parent / "tests" / "tools" / "check_linetables"

# Any standard library has more than 800,000; far fewer would mean that its sources were not found.
FEWEST_INSTRUCTIONS = 100_000


def test_standard_library(python):
    # -I: neither the environment nor a sitecustomize of this machine takes part.
    emitter_command = [python.path, "-I", str(TARGETS / "emit_linetables.py")]
    with subprocess.Popen(emitter_command, stdout=subprocess.PIPE) as emitter:
        try:
            checked = subprocess.run([str(CHECKER)], stdin=emitter.stdout, stdout=subprocess.PIPE, text=True, timeout=100)
            # Only one end left, so that an emitter that still writes learns that nobody reads.
            emitter.stdout.close()
            assert emitter.wait(timeout=10) == 0
        finally:
            emitter.kill()
    totals = re.search(r"(\d+) code objects, (\d+) instructions, (\d+) differences\n$", checked.stdout)
    assert checked.returncode in (0, 1) and totals, checked.stdout
    _, instructions, differences = map(int, totals.groups())
    assert differences == 0, checked.stdout
    assert instructions > FEWEST_INSTRUCTIONS
