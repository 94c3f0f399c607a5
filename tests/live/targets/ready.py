"""Says that it is there and waits. Runs under Python 2 as well."""

import sys

sys.stdout.write("ready\n")
sys.stdout.flush()
sys.stdin.readline()
