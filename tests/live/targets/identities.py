# -*- coding: utf-8 -*-
"""Threads that came to be in every way, with names that changed meanwhile."""

import _thread
import ctypes
import threading

import truth

threads = truth.Threads()
kept = []


def rename(name, stop):
    threading.current_thread().name = name
    stop()


def run(stop):
    stop()


def from_c(stop):
    """pthread_create, and a callback for which ctypes makes a thread state (PyGILState_Ensure)."""
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: stop() and 0)
    thread = ctypes.c_ulong()
    kept.append((function, thread))
    create = ctypes.CDLL(None).pthread_create
    create.argtypes = [ctypes.c_void_p] * 4
    assert create(ctypes.addressof(thread), None, ctypes.cast(function, ctypes.c_void_p), None) == 0
    threads.await_one()


def without_a_name(stop):
    _thread.start_new_thread(run, (stop,))
    threads.await_one()


def not_daemon(stop):
    threading.Thread(target=run, args=(stop,), name="not daemon", daemon=False).start()
    threads.await_one()


def timer(stop):
    threading.Timer(0, stop).start()
    threads.await_one()


def ended():
    thread = threading.Thread(target=int, name="ended")
    thread.start()
    thread.join()


if __name__ == "__main__":
    threads.start(rename, "renamed inside", threads.stop(), name="first name")
    threads.start(rename, "größer 線程 \U0001f9f5", threads.stop(), name="x")
    threads.start(rename, "surrogate \udc80", threads.stop())
    threads.start(rename, "", threads.stop())
    threads.start(rename, "x" * 100_000, threads.stop())
    threads.start(run, threads.stop(), name="renamed outside")
    from_c(threads.stop())
    without_a_name(threads.stop())
    not_daemon(threads.stop())
    timer(threads.stop())
    ended()
    threading.main_thread().name = "the main one"
    # The last of those that are known by the name they were given.
    [thread for thread in threading.enumerate() if thread.name == "renamed outside"][0].name = "by another"
    told = [told for told in truth._told if told["name"] == "renamed outside"]
    told[0]["name"] = "by another"
    truth.main_stop()()
