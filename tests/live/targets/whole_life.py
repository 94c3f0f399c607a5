"""Lives a short life with all that a program can have when it ends: threads, of which one does not, interpreters, and
objects that run Python code while the rest of it is being taken down. Says 'lived' and exits with status 3."""

import atexit
import gc
import json
import sys
import threading
import weakref


def leaf(x):
    return x + 1


class Late:
    """Collected at the very end, in one way or another."""

    def __init__(self, *others):
        self.others = others

    def __del__(self):
        for i in range(5):
            leaf(i)


class Cycle(Late):
    def __init__(self):
        super().__init__()
        self.self = self


def values():
    try:
        yield leaf(1)
        yield leaf(2)
    finally:
        leaf(3)


def forever(event):
    event.set()
    while True:
        sum(map(leaf, values()))


def briefly(results):
    results.append(sum(map(leaf, values())))


def in_another_interpreter():
    try:
        import _interpreters as interpreters
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            return
    text = "class C:\n  def __del__(self): len('x')\nc = C()\nc.self = c\nsum(len(str(i)) for i in range(20))"
    for _ in range(2):
        created = interpreters.create()
        interpreters.run_string(created, text)
        interpreters.destroy(created)


def main():
    results = []
    threads = [threading.Thread(target=briefly, args=(results,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    in_another_interpreter()
    atexit.register(leaf, 5)
    json.loads(json.dumps(list(range(50))))
    gc.collect()


main()
local = threading.local()
local.late = Late(Cycle())
unfinished = values()
next(unfinished)
late = Late(Late(), unfinished)
sys.late = Late()
reference = weakref.ref(late, leaf)
weakref.finalize(late, leaf, 1)
Cycle()
# Whoever gives the GIL up, to read a file say, waits for this one.
sys.setswitchinterval(0.0001)
event = threading.Event()
threading.Thread(target=forever, args=(event,), daemon=True).start()
event.wait()
print("lived", flush=True)
sys.exit(3)
