"""Counts a real-time signal and a timer's; told to, says how many there were."""

import json
import os
import signal
import sys
import threading
import time

counts = {"signals": 0, "timers": 0, "interrupted": 0}


def count_timer(number, frame):
    counts["timers"] += 1


def take_signals():
    """A handler in Python would merge what comes before it runs; waiting takes each by itself. The lowest number comes
    first (signal(7)), so SIGRTMAX comes when all of the others were taken."""
    while signal.sigwait([signal.SIGRTMIN, signal.SIGRTMAX]) != signal.SIGRTMAX:
        counts["signals"] += 1


def sleep():
    while True:
        end = time.monotonic() + 0.005
        time.sleep(0.005)
        if time.monotonic() < end:
            counts["interrupted"] += 1


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN, signal.SIGRTMAX, signal.SIGALRM])
    taker = threading.Thread(target=take_signals, daemon=True)
    taker.start()
    threading.Thread(target=sleep, daemon=True).start()
    signal.signal(signal.SIGALRM, count_timer)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    print("ready", flush=True)
    sys.stdin.readline()
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.kill(os.getpid(), signal.SIGRTMAX)
    taker.join()
    print(json.dumps(counts), flush=True)
