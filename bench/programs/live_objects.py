"""Holds so many small objects and says what that takes.

usage: live_objects.py OBJECTS RESULT

Writes {"dirty_bytes"} of the process to the file RESULT, as the kernel has it, when all are there: what was written to, its own
or shared with the profiler. Clean pages of files are left out: whether they are there depends on who else runs.
"""

import json
import sys
from pathlib import Path


def dirty_bytes():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Shared_Dirty:")))


def main():
    kept = [float(number) for number in range(int(sys.argv[1]))]
    Path(sys.argv[2]).write_text(json.dumps({"dirty_bytes": dirty_bytes()}))
    return kept


if __name__ == "__main__":
    main()
