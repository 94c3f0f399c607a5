"""Programs with a leak and without one, for test_leaks. Each runs for SECONDS and does its work in steps, in functions that
are called again and again; a line that leaks ends in `#leak`."""

SECONDS = 3.2
# One block that grows for less than ten seconds is none.
MOST_SECONDS = 8
CONTAINER_SECONDS = 11.5

HEAD = f"""
import collections, functools, gc, os, threading, time

def steps(pause=0.02, seconds=None):
    '''How far the program is, from 0 to 1.'''
    start = time.monotonic()
    # Of a process's life its start is a small part, also on a busy machine.
    started = float(open('/proc/self/stat').read().rpartition(')')[2].split()[19]) / os.sysconf('SC_CLK_TCK')
    planned = seconds or min(max({SECONDS}, 6 * (time.clock_gettime(time.CLOCK_BOOTTIME) - started)), {MOST_SECONDS})
    seconds, last = planned, start
    while last - start < seconds:
        yield min((last - start) / planned, 1)
        time.sleep(pause)
        # Nor is a step for which it got no processor.
        now = time.monotonic()
        seconds, last = max(seconds, min(12 * (now - last), {MOST_SECONDS})), now

def churn(megabytes=2):
    '''Work that leaves nothing behind.'''
    return sum(len(bytes(50_000 + i)) for i in range(20 * megabytes))
"""

HARMLESS = {
    "a cache that fills and stays": """
cache = {}
def look_up(key):
    if key not in cache:
        cache[key] = bytes(300_000)
    return cache[key]
for i, _ in enumerate(steps()):
    look_up(i % 35)
    churn()
""",
    "a memo of what is asked for at random": """
import random
@functools.lru_cache(maxsize=None)
def compute(key):
    return bytes(200_000)
for at in steps():
    for _ in range(8):
        compute(random.randrange(60))
""",
    "an LRU cache that is always full": """
@functools.lru_cache(maxsize=25)
def compute(key):
    return bytes(200_000)
for i, at in enumerate(steps()):
    compute(i)
    churn(1)
""",
    "a list that is built, then used": """
def build(rows, i):
    rows.append([bytes(1000) for _ in range(300)])
def use(rows):
    return sum(len(row) for row in rows)
rows = []
for i, at in enumerate(steps()):
    if at < 0.75:
        build(rows, i)
    else:
        use(rows)
""",
    "results that a function gathers to its end": """
def result(i):
    return bytearray(300_000)
def gather():
    results = []
    for i, at in enumerate(steps()):
        results.append(result(i))
    return len(results)
print(gather())
""",
    "a script that gathers to its end": """
results = []
for i, at in enumerate(steps()):
    results.append(bytearray(300_000))
print(len(results))
""",
    "what grows, then shrinks": """
stack = []
def push():
    stack.extend(bytes(100_000) for _ in range(4))
def pop():
    del stack[-4:]
for at in steps():
    push() if at < 0.5 else pop()
""",
    "a text that is built": """
text = ''
def add(i):
    global text
    text += 'line %d\\n' % i + 'x' * 100_000
for i, at in enumerate(steps()):
    add(i)
""",
    "a buffer that grows": """
buffer = bytearray()
chunk = bytes(200_000)
def receive():
    buffer.extend(chunk)
for at in steps():
    receive()
""",
    "generators": """
def numbers(n):
    for i in range(n):
        yield [i] * 2000
def work():
    return sum(len(x) for x in map(list, numbers(150)) if x)
for at in steps():
    work()
""",
    "a pool of threads": """
from concurrent.futures import ThreadPoolExecutor
def job(n):
    return bytes(200_000 + n)
def work():
    return sum(map(len, pool.map(job, range(20))))
with ThreadPoolExecutor(4) as pool:
    for at in steps():
        work()
""",
    "threads that come and go": """
def job():
    local = [bytes(100_000) for _ in range(5)]
    time.sleep(0.01)
for at in steps():
    threads = [threading.Thread(target=job) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
""",
    "a queue between threads": """
import queue
jobs = queue.Queue(10)
def work():
    while jobs.get() is not None:
        pass
worker = threading.Thread(target=work)
worker.start()
for at in steps():
    jobs.put([bytes(1000) for _ in range(300)])
jobs.put(None)
worker.join()
""",
    "modules that are loaded again": """
import importlib, json.decoder, argparse
def again():
    importlib.reload(argparse)
    importlib.reload(json.decoder)
for at in steps():
    again()
""",
    "patterns in the cache of re": """
import re
def match(i):
    return [re.match('(a%d|b+)(c|d){%d}' % (i * 20 + j, j), 'a') for j in range(1, 20)]
for i, at in enumerate(steps()):
    match(i)
""",
    "a dict that resizes": """
keys = [str(i) for i in range(600_000)]
table = {}
def fill(at):
    while len(table) < at * len(keys):
        table[keys[len(table)]] = None
for at in steps():
    fill(at)
""",
    "a deque with a length": """
last = collections.deque(maxlen=40)
def note():
    last.append([bytes(1000) for _ in range(200)])
for at in steps():
    note()
""",
    "a list that is cut": """
log = []
def note(i):
    log.append(bytes(200_000 + i))
    if len(log) > 40:
        del log[:20]
for i, at in enumerate(steps()):
    note(i)
""",
    "sorted copies": """
import random
rows = [(random.random(), str(i)) for i in range(30_000)]
def shuffle():
    global rows
    random.shuffle(rows)
    rows = sorted([(random.random(), name) for _, name in rows])
for at in steps():
    shuffle()
""",
    "recursion": """
def down(n):
    local = bytes(20_000)
    return down(n - 1) + 1 if n else 0
for at in steps():
    down(100)
""",
    "pickling": """
import pickle
data = [{'name': str(i), 'values': [i] * 10} for i in range(3000)]
def copy():
    global data
    data = pickle.loads(pickle.dumps(data))
for at in steps():
    copy()
""",
    "JSON": """
import json
data = {str(i): [i, str(i), None] for i in range(3000)}
def copy():
    return json.loads(json.dumps(data))
for at in steps():
    copy()
""",
    "classes": """
def make(i):
    return [type('C%d' % j, (), {'x': bytes(2000), 'f': lambda self: 1}) for j in range(60)]
for i, at in enumerate(steps()):
    make(i)
""",
    "cycles that the collector finds": """
class Node:
    pass
def ring(n):
    nodes = [Node() for _ in range(n)]
    for i, node in enumerate(nodes):
        node.next, node.data = nodes[i - 1], bytes(300)
for at in steps():
    ring(2000)
""",
    "asyncio": """
import asyncio
async def job(n):
    data = [bytes(1000) for _ in range(50)]
    await asyncio.sleep(0.001)
    return len(data)
async def main():
    for at in steps(0.01):
        await asyncio.gather(*(job(n) for n in range(20)))
asyncio.run(main())
""",
    "compile and exec": """
def run(i):
    names = {}
    exec(compile('\\n'.join('def f%d(x): return x + %d' % (j, i) for j in range(150)), 'made-%d' % i, 'exec'), names)
    return names['f0'](i)
for i, at in enumerate(steps()):
    run(i)
""",
    "weak references": """
import weakref
class Thing:
    def __init__(self):
        self.data = bytes(50_000)
known = weakref.WeakValueDictionary()
def use(i):
    things = [Thing() for _ in range(10)]
    for j, thing in enumerate(things):
        known[j, i % 10] = thing
    return len(known)
for i, at in enumerate(steps()):
    use(i)
""",
    "exceptions": """
def fail(n):
    local = bytes(100_000)
    raise ValueError([bytes(1000)] * n)
def survive():
    for n in range(10):
        try:
            fail(n)
        except ValueError as error:
            str(error)
for at in steps():
    survive()
""",
    "the best so far": """
import heapq, random
best = []
def offer():
    for _ in range(200):
        item = (random.random(), bytes(5000))
        heapq.heappush(best, item) if len(best) < 2000 else heapq.heappushpop(best, item)
for at in steps():
    offer()
""",
}

NUMPY = """
import numpy
state = numpy.ones(500_000)
def step():
    global state
    state = (state @ state.reshape(-1, 1)) * 0 + state * 0.5 + numpy.sqrt(state)
    return numpy.sort(state.reshape(1000, -1).sum(axis=1))
for at in steps():
    step()
"""

LEAKING = {
    "in a list": """
history = []
def handle(request):
    churn(1)
    history.append(bytes(600_000)) #leak
for i, at in enumerate(steps()):
    handle(i)
""",
    "small objects in a list": """
history = []
def handle(request):
    history.extend([(request, str(number)) for number in range(4000)]) #leak
    churn(1)
for i, at in enumerate(steps()):
    handle(i)
""",
    "in a dict of a module": """
import types
registry = types.ModuleType('registry')
registry.known = {}
def register(number):
    registry.known[number] = bytearray(600_001) #leak
for i, at in enumerate(steps()):
    register(i)
    churn(1)
""",
    "in a closure": """
def make():
    seen = []
    def handle(request):
        seen.append([request] * 60_000) #leak
        return churn(1)
    return handle
handle = make()
for at in steps():
    handle(at)
""",
    "in a cache without a limit": """
@functools.lru_cache(maxsize=None)
def render(request):
    return 'x' * 600_000 #leak
for i, at in enumerate(steps()):
    render(i)
    churn(1)
""",
    "cycles, with the collector off": """
class Node:
    pass
gc.disable()
def parse():
    node = Node()
    node.me, node.text = node, bytes(600_000) #leak
for at in steps():
    parse()
    churn(1)
""",
    "in C": """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def call():
    block = libc.malloc(600_000) #leak
for at in steps():
    call()
    churn(1)
""",
    "slowly, among much that comes and goes": """
kept = []
def handle(n):
    made = [bytes(600_000) for _ in range(n)] #leak
    kept.append(made.pop())
for at in steps():
    for _ in range(4):
        handle(5)
    kept[-3:] = []
""",
    "in threads": """
kept = []
def job():
    kept.append(bytes(500_000)) #leak
for at in steps():
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
""",
    "large blocks, seldom": """
kept = []
def load():
    kept.append(bytearray(3 << 20)) #leak
for i, at in enumerate(steps()):
    if i % 8 == 0:
        load()
    churn(1)
""",
    "after a start that takes its time": """
kept = []
def load():
    return [bytes(100_000) for _ in range(200)]
def handle():
    kept.append(bytes(600_000)) #leak
    churn(1)
tables = load()
for at in steps():
    if at > 0.25:
        handle()
""",
}

# No new objects: one block that grows, and grows, the more seldom the larger it is; evenly in time, whatever else the
# machine does, as a pause at the end says that it has come to rest.
CONTAINERS = {
    "a list of nothing": f"""
seen, before = [], 0
def note(share):
    seen.extend([None] * int(share * 16_000_000)) #leak
for at in steps(0.02, {CONTAINER_SECONDS}):
    note(at - before)
    before = at
""",
    "a buffer that is never read": f"""
buffer, chunk, before = bytearray(), bytes(83_000_000), 0
def receive(share):
    more = memoryview(chunk)[:int(share * len(chunk))]
    buffer.extend(more) #leak
for at in steps(0.02, {CONTAINER_SECONDS}):
    receive(at - before)
    before = at
""",
}
