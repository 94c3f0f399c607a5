"""Prints what a program can see of its own signals, descriptors and threads."""

import json
import os
import signal
import subprocess
import threading

STATUS_KEYS = ("SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Threads")


def status(path="/proc/self/status"):
    with open(path) as file:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in file)
    return {key: fields[key] for key in STATUS_KEYS if key != "SigQ"}


def signals():
    return {
        "valid": sorted(map(int, signal.valid_signals())),
        "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "pending": sorted(map(int, signal.sigpending())),
        "range": [signal.SIGRTMIN, signal.SIGRTMAX],
        "timers": [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "status": status(),
    }


def with_all_blocked():
    """The masks as set and as told, and what a wait for everything takes."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    told = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    pending = signal.sigpending()
    # Uses up the period of strobe's clock, so that its signal is there if it is blocked.
    sum(range(2000000))
    taken = signal.sigwait(signal.valid_signals())
    more = signal.sigtimedwait(signal.valid_signals(), 0)
    kernel = status("/proc/thread-self/status")
    after = signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return [sorted(map(int, x)) for x in (before, told, pending, after)] + [int(taken), more, kernel]


def in_thread(function):
    result = []
    thread = threading.Thread(target=lambda: result.append(function()))
    thread.start()
    thread.join()
    return result[0]


def descriptors():
    return sorted(os.listdir("/proc/self/fd"), key=int)


def of_children():
    """What other programs inherit, however they are started."""
    command = ["/bin/sh", "-c", "grep -E '^(Sig|Shd)[^Q]' /proc/self/status; ls /proc/self/fd; cat /proc/self/timers"]
    told = [subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()]
    told.append(subprocess.run(command, stdout=subprocess.PIPE, close_fds=False, check=True).stdout.decode())
    told.append(subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=lambda: None).stdout.decode())
    told.append(os.popen(command[2]).read())
    read_end, write_end = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, write_end, 1)]
    options = {"setsigmask": signal.valid_signals(), "setsigdef": signal.valid_signals()}
    os.waitpid(os.posix_spawn(command[0], command, os.environ, file_actions=actions, **options), 0)
    told.append(os.read(read_end, 65536).decode())
    os.close(read_end)
    os.close(write_end)
    # With everything blocked, and a signal pending that is inherited by nobody.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    sum(range(2000000))
    told.append(subprocess.run(command, stdout=subprocess.PIPE).stdout.decode())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return told


def in_forked_child(function):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_end, json.dumps(function()).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        told = json.load(file)
    os.waitpid(pid, 0)
    return told


if __name__ == "__main__":
    sum(range(1000000))
    report = {
        "main": signals(),
        "thread": in_thread(signals),
        "blocked": with_all_blocked(),
        "blocked in thread": in_thread(with_all_blocked),
        "descriptors": descriptors(),
        "descriptors in thread": in_thread(descriptors),
        "forked": in_forked_child(signals),
        "forked descriptors": in_forked_child(descriptors),
        "children": of_children(),
        "active": threading.active_count(),
    }
    print(json.dumps(report))
