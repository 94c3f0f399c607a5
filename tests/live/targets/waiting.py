"""Waits for a child, which is Python too, and says what it was told of it."""

import json
import os

reads, writes = os.pipe()
child = os.fork()
if child == 0:
    os.write(writes, b"x")
    while True:
        os.read(0, 1)
os.read(reads, 1)
print(json.dumps({"child": child}), flush=True)
calls = 0
while True:
    calls += 1
    waited, status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED)
    if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
        break
print(json.dumps({"waited": waited, "signal": os.WTERMSIG(status), "calls": calls}), flush=True)
