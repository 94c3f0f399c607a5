"""Runs a program whose stack is looked at, from inside, after every instruction of the processor.

Arguments: the library (tests/tools/agent_walk), the folder for what was seen, how many steps, and one of the programs
below or of alternating.py. Says 'ready', steps, lets the library say 'stepped', awaits SIGINT, and then tells of all
its code objects. A line that ends in '# -> f, g' is one where a frame of f or g can stand above its function's.
"""

import ctypes
import functools
import gc
import json
import os
import signal
import sys
import threading
import types
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 1 << 30


def leaf(*_):
    return 1


def leaf_line():
    return leaf() + 1  # -> leaf


class Called:
    def __call__(self, x):
        return leaf() + x  # -> leaf

    def __getattr__(self, name):
        return leaf()  # -> leaf

    def __add__(self, other):
        return leaf_line()  # -> leaf_line

    def __eq__(self, other):
        return leaf_line()  # -> leaf_line

    def __hash__(self):
        return 1

    def __enter__(self):
        return leaf()  # -> leaf

    def __exit__(self, *exception):
        return leaf() > 0  # -> leaf

    def __getitem__(self, index):
        return leaf(self)  # -> leaf

    def __contains__(self, item):
        return leaf_line() > 0  # -> leaf_line

    def __del__(self):
        leaf()  # -> leaf

    @property
    def value(self):
        return leaf_line()  # -> leaf_line


def key(x):
    return -leaf(x)  # -> leaf


def narrow(x):
    return leaf_line()  # -> leaf_line


def wide(x):
    """Where its operands go, narrow's callee was."""
    leaf()  # -> leaf
    return [
        *(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x),
        *(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x),
    ]


def use_callbacks():
    thing = Called()
    thing(1)  # -> Called.__call__
    thing.missing  # -> Called.__getattr__
    thing + 1  # -> Called.__add__
    thing == 1  # -> Called.__eq__
    thing[3]  # -> Called.__getitem__
    3 in thing  # -> Called.__contains__
    thing.value  # -> Called.value
    sorted([1, 2, 3], key=key)  # -> key
    list(map(key, [1, 2]))  # -> key
    functools.partial(key, 3)()  # -> key
    list(map(narrow, [1, 2]))  # -> narrow
    list(map(wide, [1, 2]))  # -> wide
    with thing:  # -> Called.__enter__, Called.__exit__
        leaf()  # -> leaf, Called.__exit__
    del thing  # -> Called.__del__


def callbacks():
    for _ in range(ROUNDS):
        use_callbacks()  # -> use_callbacks


def count(n):
    for i in range(n):
        yield leaf(i)  # -> leaf


def delegate(n):
    yield from count(n)  # -> count
    return leaf()  # -> leaf


def catching():
    while True:
        try:
            yield leaf()  # -> leaf
        except ValueError:
            leaf_line()  # -> leaf_line


def outer_catching():
    yield from catching()  # -> catching


def use_generators():
    sum(count(2))  # -> count
    list(delegate(2))  # -> delegate
    one, two = count(2)  # -> count
    (lambda *a: a)(*count(1))  # -> count, <lambda>
    generator = outer_catching()  # -> outer_catching
    next(generator)  # -> outer_catching
    generator.throw(ValueError())  # -> outer_catching, catching
    generator.send(None)  # -> outer_catching
    generator.close()  # -> outer_catching, catching
    next(x for x in delegate(1))  # -> delegate, <genexpr>, count
    [y for y in (leaf(), leaf())]  # -> leaf, <listcomp>
    {y: leaf() for y in (1, 2)}  # -> leaf, <dictcomp>
    half = delegate(3)  # -> delegate, count
    next(half)  # -> delegate
    del half  # -> delegate, count


def generators_of_all_kinds():
    for _ in range(ROUNDS):
        use_generators()  # -> use_generators


def genexpr_at(depth):
    if depth:
        return genexpr_at(depth - 1)  # -> genexpr_at
    kept = count(1)  # -> count
    next(kept)  # -> count
    leaf_line()  # -> leaf_line
    leaf(1, 2, 3, *range(depth, 30))  # -> leaf
    return kept


def growing():
    """Generators made, and functions called, wherever the data stack's chunk can end."""
    for _ in range(ROUNDS):
        for depth in range(60, 260, 3):
            genexpr_at(depth)  # -> genexpr_at, count


class Base:
    def __init__(self):
        leaf()  # -> leaf

    def __init_subclass__(cls):
        leaf()  # -> leaf


class Derived(Base):  # -> Base.__init_subclass__
    def __new__(cls):
        leaf_line()  # -> leaf_line
        return super().__new__(cls)

    def __init__(self):
        super().__init__()  # -> Base.__init__


def construct():
    Base()  # -> Base.__init__
    Derived()  # -> Derived.__new__, Derived.__init__

    class Local(Base):  # -> Local, Base.__init_subclass__
        x = leaf()  # -> leaf

    type("Other", (Base,), {})  # -> Base.__init_subclass__
    exec("leaf()", {"leaf": leaf})  # -> <module>
    eval("leaf()", {"leaf": leaf})  # -> <module>


def constructing():
    for _ in range(ROUNDS):
        construct()  # -> construct


class Ring:
    def __init__(self):
        self.self = self

    def __del__(self):
        leaf()  # -> leaf


def forget(reference):
    leaf()  # -> leaf


def on_gc(phase, info):
    leaf()  # -> leaf


def collect():
    rings = [Ring(), Ring()]  # -> Ring.__init__
    references = [weakref.ref(ring, forget) for ring in rings]  # -> <listcomp>
    del rings  # -> Ring.__del__
    gc.collect()  # -> on_gc, Ring.__del__, forget
    del references


def collecting():
    gc.disable()
    gc.callbacks.append(on_gc)
    # Each collection stops all threads: without a GIL who is to tell would get nowhere beside it.
    while not asked:
        collect()  # -> collect
    threading.Event().wait()


def in_thread(event):
    leaf_line()  # -> leaf_line
    event.append(list(count(2)))  # -> count


def threads_start_and_end():
    for _ in range(ROUNDS):
        said = []
        thread = threading.Thread(target=in_thread, args=(said,))
        thread.start()
        thread.join()


def overflow(n):
    return overflow(n + 1)  # -> overflow


def raise_deep():
    try:
        overflow(0)  # -> overflow
    except RecursionError:
        leaf()  # -> leaf


def raising():
    sys.setrecursionlimit(400)
    for _ in range(ROUNDS):
        raise_deep()  # -> raise_deep


def trace(frame, event, argument):
    leaf()  # -> leaf
    return trace


def traced():
    leaf_line()  # -> leaf_line, trace
    list(count(1))  # -> count, trace
    return 1  # -> trace


def tracing():
    for _ in range(ROUNDS):
        sys.settrace(trace)
        traced()  # -> traced, trace
        sys.settrace(None)


def hop(other):
    leaf_line()  # -> leaf_line
    other.switch()
    leaf()  # -> leaf
    return 1


def use_greenlets():
    import greenlet

    here = greenlet.getcurrent()
    one = greenlet.greenlet(hop)
    two = greenlet.greenlet(lambda: hop(here))  # -> hop
    one.switch(here)  # -> hop
    two.switch()  # -> <lambda>, hop
    one.switch()  # -> hop
    two.switch()  # -> <lambda>, hop
    leaf_line()  # -> leaf_line


def greenlets():
    """Where the package is to be had; by hand."""
    import greenlet  # noqa: F401

    begin()
    for _ in range(ROUNDS):
        use_greenlets()  # -> use_greenlets


SHORT = "def f():\n    return 1\nf()\n"


def short_lived():
    """Code objects of the same text and size, one at a time, mostly at the same addresses. The library is told which."""
    walk = ctypes.CDLL(sys.argv[1])
    pause, resume = walk.walk_pause, walk.walk_resume
    marker = ctypes.c_uint64.in_dll(walk, "walk_marker")
    begin()
    pause()
    for i in range(1, ROUNDS):
        code = compile(SHORT, "<gen %d>" % i, "exec")
        marker.value = i
        resume()
        exec(code, {})  # -> <module>
        pause()


NAMES = ["plain", "\xe9t\xe9", "\u03b1\u03b2\u03b3", "\U00020000\U00020001", "n" * 5000, "\u03b1" * 3000, "\U00020000" * 1500]
FILES = ["x.py", "\xe9.py", "\u20ac.py", "\U0001f600.py", "bad\udc80.py", "f" * 20000, "\u20ac" * 9000, ""]


def made_with_odd_names():
    made = {"leaf": leaf}
    # A line table that is too long to be taken along.
    source = "def long():\n if leaf(1): return\n" + " leaf(1); leaf(2); leaf(3)\n" * 16000
    exec(compile(source, "long.py", "exec"), made)
    yield made["long"]
    for name in NAMES:
        for file in FILES:
            source = "\n" * 300 + "class C_%s:\n  def %s():\n\n    return leaf(\n 1,\n\n 2)" % (name, name)
            exec(compile(source, file, "exec"), made)
            yield getattr(made["C_" + name], name)


def odd_names():
    kept.extend(made_with_odd_names())
    # It would take most of the steps.
    gc.disable()
    begin()
    for _ in range(ROUNDS):
        for function in kept:
            function()


kept = []
telling = threading.Event()
asked = []


def describe(code, into):
    if id(code) in into:
        return
    lines = [None] * (len(code.co_code) // 2)
    if hasattr(code, "co_positions"):
        lines = [position[0] for position in code.co_positions()]
    elif hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            for unit in range(start // 2, end // 2):
                lines[unit] = line
    else:
        import dis

        starts = dict(dis.findlinestarts(code))
        line = None
        for unit in range(len(lines)):
            line = starts.get(unit * 2, line)
            lines[unit] = line
    into[id(code)] = {
        "name": code.co_name,
        "qualname": getattr(code, "co_qualname", None),
        "file": code.co_filename,
        "first_line": code.co_firstlineno,
        "bytecode_bytes": len(code.co_code),
        "lines": lines,
        "flags": code.co_flags,
        "table": (code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab).hex(),
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            describe(constant, into)


def tell():
    """In a thread of its own: the program's may be where exceptions end in nothing, or have no room for one more call."""
    signal.sigwait([signal.SIGINT])
    asked.append(True)
    telling.set()
    sys.setrecursionlimit(1000)
    codes = {}
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType):
            describe(thing.__code__, codes)
    print(json.dumps(codes), flush=True)
    os._exit(0)


def main():
    library, folder, steps, name = sys.argv[1:5]
    walk = ctypes.CDLL(library)
    walk.walk_open.restype = ctypes.c_char_p
    walk.walk_begin.argtypes = [ctypes.c_char_p] + [ctypes.c_int64] * 3
    reason = walk.walk_open()
    if reason:
        raise SystemExit(reason.decode())
    scope = globals()
    if name not in scope:
        path = os.path.join(HERE, "alternating.py")
        with open(path) as file:
            text = file.read().rpartition("\nmain()")[0]
        module = compile(text, path, "exec")
        scope = {"__name__": "alternating"}
        exec(module, scope)
    program = scope[name]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Thread(target=tell, daemon=True).start()
    print("ready", flush=True)
    global begin
    begin = functools.partial(walk.walk_begin, folder.encode(), int(steps), 0, 0)
    if name not in ("greenlets", "odd_names", "short_lived"):
        begin()
    try:
        program()  # -> PROGRAM
    except SystemError:
        # The interpreter cannot grow a tuple that gc.get_objects() has laid its hands on.
        if not telling.is_set():
            raise
        threading.Event().wait()


main()  # -> main
