"""bursts.py SECONDS: forty threads that mostly sleep. One at a time is woken for a few milliseconds: it computes under the
GIL, then hashes without it, less than the kernel's tick each. Says what they used, by their own clocks, in functions."""

import hashlib
import json
import queue
import sys
import threading
import time

THREADS = 40
BURST_S = 0.0015
NOISE = bytes(1 << 16)
spent = {"compute": 0.0, "digest": 0.0}


def compute(end):
    while time.thread_time() < end:
        x = 0
        for i in range(50):
            x = (x * 31 + i) & 0xFFFF


def digest(end):
    while time.thread_time() < end:
        hashlib.sha256(NOISE)


def burst():
    for function in compute, digest:
        begin = time.thread_time()
        function(begin + BURST_S)
        spent[function.__name__] += time.thread_time() - begin


def work(inbox, done):
    while inbox.get():
        burst()
        done.put(None)


threading.stack_size(256 << 10)
done = queue.SimpleQueue()
inboxes = [queue.SimpleQueue() for _ in range(THREADS)]
threads = [threading.Thread(target=work, args=(inbox, done)) for inbox in inboxes]
for thread in threads:
    thread.start()
print('"ready"', flush=True)
end = time.perf_counter() + float(sys.argv[1])
count = 0
while time.perf_counter() < end:
    inboxes[count % THREADS].put(True)
    count += 1
    done.get()
    # Not in step with who looks.
    time.sleep(0.004 + count % 7 * 0.001)
for inbox in inboxes:
    inbox.put(False)
for thread in threads:
    thread.join()
print(json.dumps({"functions": spent, "bursts": count}), flush=True)
