"""Threads in interpreters of their own, each stopped, each telling of itself. The argument names the module to use."""

import importlib
import json
import os
import sys
import threading

import truth

# Runs in the other interpreter.
SCRIPT = """
import sys
sys.path.insert(0, %(folder)r)
import os, threading, functools
import truth

threads = truth.Threads()

def second():
    threads.stop()()

threading.Thread(target=second, name="second of %(number)d").start()
threads.await_one()

def in_function(stop):
    return [stop() for _ in "a"]

in_function(truth.main_stop(functools.partial(os.read, %(never)d, 1), descriptor=%(tell)d))
"""


def modules(name):
    module = importlib.import_module(name)
    if name == "concurrent.interpreters":
        return module.create, lambda made: made.id, lambda made, script: made.exec(script)
    # Isolated ones may not start threads before 3.12.
    create = module.create if sys.version_info >= (3, 12) or sys.version_info < (3, 9) else isolated_not(module)
    return create, int, module.run_string


def isolated_not(module):
    return lambda: module.create(isolated=False)


def read_line(descriptor):
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(descriptor, 1 << 16)
    return json.loads(line)


def run_in(create, run, script, created):
    interpreter = create()
    created(interpreter)
    run(interpreter, script)


def main(name, count):
    create, id_of, run = modules(name)
    never, _ = os.pipe()
    by_interpreter = {}
    interpreters = []
    runners = []
    for number in range(count):
        hears, tells = os.pipe()
        script = SCRIPT % {"folder": os.path.dirname(truth.__file__), "number": number, "never": never, "tell": tells}
        # Up to 3.12 what runs in another interpreter bears the id of the thread that created that, whoever runs it.
        made = [create()] if sys.version_info >= (3, 13) else []
        runner = threading.Thread(
            target=run_in,
            args=(made.pop if made else create, run, script, interpreters.append),
            name="runner %d" % number,
            daemon=True,
        )
        runner.start()
        runners.append(runner)
        told = read_line(hears)["threads"]
        by_interpreter[id_of(interpreters[-1])] = told

    def record_runners():
        """The runners are in C, so their frames stand still."""
        frames = sys._current_frames()
        for runner in runners:
            truth._told.append(
                {
                    "thread_id": runner.ident,
                    "native_id": runner.native_id,
                    "name": runner.name,
                    "frames": truth.stack_of(frames[runner.ident]),
                }
            )
        truth._told.append(truth.record_of(sys._getframe(1)))
        truth._others.update(by_interpreter)

    truth.main_stop(before=record_runners)()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
