"""--measure: what formats show that show one measure, each as its own readers have it; and what `diff` makes of all."""

import gzip
import json
import pstats
import re
import subprocess
from collections import Counter

import pytest

import made_captures as captures
from made_captures import MS, report
from reports import HERE, need, node, python_module
from test_formats import FirefoxProfiler, find_go

ROOT = HERE.parent.parent
NS = 1e9
# Those of a run, by the word that asks for them.
WORDS = {
    "cpu": "cpu", "python": "python", "native": "native", "kernel": "kernel", "wait": "wait", "gil": "gil_wait",
    "alloc": "alloc_bytes", "alloc_count": "alloc_count", "peak": "peak_bytes", "live": "live_bytes",
}  # fmt: skip
TIMES = ("cpu", "python", "native", "kernel", "wait", "gil")
PPROF = {"cpu": "cpu", "native": "cpu_native", "wait": "wait", "alloc": "alloc_space", "peak": "peak_space"}
each_word = pytest.mark.parametrize("word", WORDS)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measures")
    run = captures.crunch(folder)
    run.capture = run.write(folder / "crunch.strobe")
    return run


def by_function(run, word):
    """The measure of what ran innermost, by name."""
    sums = run.sums(lambda _, stack: stack[-1]["function"])
    return {name: amounts[WORDS[word]] for name, amounts in sums.items() if amounts[WORDS[word]]}


def refused(*options):
    command = [captures.STROBE, "report", *options]
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (finished.returncode, finished.stdout, finished.stderr.count("\n")) == (2, "", 1), finished
    return finished.stderr


@each_word
def test_collapsed(run, word):
    text = report(run.capture, "collapsed", None, "--measure", word)
    scale = 1000 if word in TIMES else 1
    found = Counter()
    for line in text.splitlines():
        stack, weight = line.rsplit(" ", 1)
        found[re.sub(r":\d+$", "", stack.split(";")[-1]).split(":")[-1]] += int(weight)
    expected = {name: amount / scale for name, amount in by_function(run, word).items()}
    assert found == pytest.approx(expected, abs=2)
    assert sum(found.values()) == pytest.approx(sum(expected.values()), abs=1)


@each_word
def test_pstats(run, word, tmp_path):
    stats = pstats.Stats(str(report(run.capture, "pstats", tmp_path / "out", "--measure", word))).stats
    scale = NS if word in TIMES else 1
    found = Counter()
    for (file, line, function), (_, _, self_time, _, _) in stats.items():
        assert (file == "~") == (line == 0) == function.startswith("<") or function == "<module>"
        # Of a native function the library is in its name: two libraries may have functions of one name.
        found[re.sub(r"^<(.*) in /.*>$", r"\1", function)] += self_time
    expected = {name: amount / scale for name, amount in by_function(run, word).items()}
    assert {name: amount for name, amount in found.items() if amount} == pytest.approx(expected)


def test_pstats_tells_functions_of_one_name_apart(tmp_path):
    run = captures.Run(["python3", "x.py"])
    thread, main = run.thread("MainThread"), captures.frame("f", "/x.py", 3, 1)
    run.spend(thread, [main], "inflate", "/usr/lib/libz.so", native=30 * MS)
    run.spend(thread, [main], "inflate", "/opt/lib/libz.so", native=50 * MS)
    run.spend(thread, [main, captures.frame("inflate", "~", 0, 0)], python=70 * MS)
    stats = pstats.Stats(str(report(run.write(tmp_path / "one.strobe"), "pstats", tmp_path / "out"))).stats
    assert sorted(round(value[2], 3) for value in stats.values() if value[2]) == [0.03, 0.05, 0.07]
    (f,) = (key for key in stats if key[2] == "f")
    assert all(list(value[4]) == [f] for key, value in stats.items() if key != f)


@each_word
def test_svg(run, word, tmp_path):
    text = report(run.capture, "svg", None, "--measure", word)
    told = re.search(r'class="sub"[^>]*>(\w+): ([\d.]+)', text)
    total = run.total()[WORDS[word]]
    assert float(told[2]) == pytest.approx(total / NS if word in TIMES else total, abs=0.001)


@pytest.mark.parametrize("word", PPROF)
def test_pprof_opens_with_it_and_has_all(run, word, tmp_path):
    profile_pb2 = python_module("flamegraph_textual.parsers.profile_pb2")
    profile = profile_pb2.Profile()
    path = report(run.capture, "pprof", tmp_path / "out.pb.gz", "--measure", word)
    profile.ParseFromString(gzip.decompress(path.read_bytes()))
    text = profile.string_table
    assert text[profile.default_sample_type] == PPROF[word]
    types = [text[kind.type] for kind in profile.sample_type]
    sums = dict(zip(types, map(sum, zip(*(sample.value for sample in profile.sample)))))
    assert {name: sums[PPROF[name]] for name in PPROF} == {name: run.total()[WORDS[name]] for name in PPROF}


def test_pprof_read_by_go(run, tmp_path):
    go = need(find_go(), "go")
    path = report(run.capture, "pprof", tmp_path / "out.pb.gz", "--measure", "alloc")
    command = [go, "tool", "pprof", "-top", "-unit=B", path]
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert "Type: alloc_space" in finished.stdout and f"{run.total()['alloc_bytes']}B total" in finished.stdout


def test_speedscope_opens_with_it_and_has_all(run, tmp_path):
    words = ("native", "wait", "live")
    paths = [report(run.capture, "speedscope", tmp_path / f"{w}.speedscope.json", "--measure", w) for w in words]
    names = {"cpu": "cpu", "native": "cpu_native", "wait": "wait", "live": "live_bytes", "alloc": "alloc_bytes"}
    for word, result in zip(words, node("speedscope.mjs", *paths)):
        assert result["errors"] == []
        profiles = result["imported"]["profiles"]
        assert profiles[0]["name"].endswith(": " + names[word])
        for other, name in names.items():
            sum_of = sum(p["endValue"] for p in profiles if p["name"].endswith(": " + name))
            assert sum_of == pytest.approx(run.total()[WORDS[other]] / (NS if other in TIMES else 1))


@pytest.mark.parametrize("word,kind", [("wait", "tracing-ms"), ("peak", "bytes")])
def test_gecko_in_the_firefox_profiler(run, word, kind, tmp_path):
    path = report(run.capture, "gecko", tmp_path / "out.json", "--measure", word)
    found = Counter()
    with FirefoxProfiler(path) as profiler:
        for thread in range(len(run.threads)):
            answer = profiler.ask("thread", "functions", "--thread", f"t-{thread}")
            assert answer["weightType"] == kind
            for function in answer["functions"]:
                found[function["name"]] += function["selfSamples"]
    expected = {name: amount / (MS if kind != "bytes" else 1) for name, amount in by_function(run, word).items()}
    names = {name.split(".")[-1]: amount for name, amount in found.items() if amount}
    assert names == pytest.approx(expected)


def looks(tmp_path):
    """A capture made by attaching: each look tells whether the thread ran, waited, or waited for the GIL."""
    run = captures.Run(["python3", "x.py"])
    run.records[0].update(mode=0, origin=0)
    thread = run.thread("MainThread")
    spent = Counter()
    for i in range(60):
        function, ran, gil = (("burn", 1, 2), ("sleep", 2, 1), ("queue", 2, 3))[i // 10 % 3]
        run.now += 10 * MS
        run.records.append(
            {
                "record": "sample", "thread": thread, "stack": [captures.frame(function, "/x.py", 3, 1)],
                "time_ns": run.now, "weight_ns": 10 * MS, "run": ran, "gil": gil, "collecting": False,
            }  # fmt: skip
        )
        spent[function] += 10 * MS
    return run.write(tmp_path / "looks.strobe"), spent


MEASURES_OF = {"cpu": ["burn"], "wait": ["sleep", "queue"], "gil": ["queue"], "wall": ["burn", "sleep", "queue"]}


@pytest.mark.parametrize("word", MEASURES_OF)
def test_looks_by_what_the_thread_did(tmp_path, word):
    """In their order, where the format has one."""
    capture, spent = looks(tmp_path)
    expected = {name: spent[name] / NS for name in MEASURES_OF[word]}
    chrome = json.loads(report(capture, "chrome", None, "--measure", word))
    assert chrome["otherData"]["in_order"] == "true"
    found, begun = Counter(), {}
    for event in chrome["traceEvents"]:
        name = event["name"].split(" ")[0]
        if event["ph"] == "B":
            begun[name] = event["ts"]
        elif event["ph"] == "E":
            found[name] += (event["ts"] - begun.pop(name)) / 1e6
    assert found == pytest.approx(expected, abs=1e-6)
    collapsed = report(capture, "collapsed", None, "--measure", word)
    assert {line.split(":")[1]: int(line.split(" ")[1]) / 1e6 for line in collapsed.splitlines()} == pytest.approx(
        expected
    )


def test_what_cannot_be_shown_is_refused(run, tmp_path):
    assert "spans of time" in refused("-f", "chrome", "--measure", "alloc", run.capture)
    assert "no such measure" in refused("-f", "svg", "--measure", "beauty", run.capture)
    for format in ("json", "html"):
        assert "collapsed" in refused("-f", format, "--measure", "cpu", run.capture)
    assert "it has" in refused("-f", "svg", "--measure", "wall", run.capture)
    capture, _ = looks(tmp_path)
    told = refused("-f", "svg", "--measure", "peak", capture)
    assert told == "strobe: the capture does not have 'peak'; it has samples, wall, cpu, wait, gil\n"


# ------------------------------------------------------------------------------------------------------- diff ----


@pytest.fixture(scope="module")
def pair(run, tmp_path_factory):
    """The run, and one that did all of it twice."""
    after = captures.crunch(run.capture.parent)
    for thread, stack, amounts in list(after.spent):
        kept = {name: amount for name, amount in amounts.items() if name != "samples"}
        after.now += kept.get("cpu", 0)
        after._event(thread, stack, kept)
    return run, after, after.write(tmp_path_factory.mktemp("pair") / "after.strobe")


def diff(*options):
    command = [captures.STROBE, "diff", *map(str, options)]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60, text=True).stdout


def test_diff_has_all_measures(pair):
    before, after, capture = pair
    told = json.loads(diff("-f", "json", before.capture, capture))
    keys = {"wait": "wait_s", "gil_wait": "gil_wait_s", "alloc_bytes": "alloc_bytes", "alloc_count": "alloc_count"}
    scale = told["scale"]
    assert 0 < scale < 1
    for amounts, run, factor in ((told["before"]["sums"], before, 1), (told["after"]["sums"], after, scale)):
        for part in captures.PARTS:
            assert amounts["cpu_s"][part] == pytest.approx(run.total()[part] * factor / NS)
        for name, key in keys.items():
            expected = run.total()[name] * factor / (NS if key.endswith("_s") else 1)
            assert amounts[key] == pytest.approx(expected, rel=1e-6)
        # What was held is no flow.
        for name in ("peak_bytes", "live_bytes"):
            assert amounts[name] == run.total()[name]


EVERY_MEASURE = {name: 3 * MS for name in captures.MEASURES if name not in ("samples", "wall", "cpu")}


def every_measure(path):
    """A run with each measure, on a line that is known and on one that is not."""
    run = captures.Run(["python3", "x.py"])
    thread = run.thread("MainThread")
    for line in (3, None):
        run.spend(thread, [captures.frame("f", "/x.py", line, 1)], **EVERY_MEASURE)
    return run.write(path)


def from_outside(path):
    run = captures.Run(["python3", "x.py"])
    run.records[0] |= {"mode": 0, "origin": 0}
    sample = {
        "record": "sample", "thread": run.thread("MainThread"), "stack": [captures.frame("f", "/x.py", 3, 1)],
        "time_ns": run.now + MS, "weight_ns": MS, "run": 2, "gil": 2, "collecting": False,
    }  # fmt: skip
    run.records.append(sample)
    return run.write(path)


def test_diff_fits_its_schema(pair, tmp_path):
    jsonschema = python_module("jsonschema")
    schema = json.loads((ROOT / "docs" / "diff.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    made = [every_measure(tmp_path / "every"), from_outside(tmp_path / "outside"), pair[0].capture, pair[2]]
    seen = set()
    for before in made:
        for after in made:
            for options in ((), ("--as-is",), ("--all", "--scale")):
                told = json.loads(diff("-f", "json", *options, before, after))
                validator.validate(told)
                seen |= set(told["after"]["sums"])
    # The schema has no measure that no comparison has.
    assert seen == set(schema["$defs"]["measures"]["properties"])


def test_diff_as_it_is(pair):
    before, after, capture = pair
    told = json.loads(diff("-f", "json", "--as-is", before.capture, capture))
    assert told["scale"] == 1
    for part in captures.PARTS:
        assert told["after"]["sums"]["cpu_s"][part] == pytest.approx(2 * before.total()[part] / NS)


def test_diff_tables(pair):
    before, _, capture = pair
    text = diff("--as-is", before.capture, capture)
    for word in ("cpu", "python", "native", "kernel", "wait", "gil", "alloc", "peak"):
        assert f"in all ({word})" in text
    for head in ("line (cpu)", "function (cpu)", "line (wait)", "line (alloc)"):
        assert head in text
    (total,) = (line for line in text.splitlines() if line.endswith("in all (cpu)"))
    assert "+100.0%" in total
    alone = diff("--as-is", "--measure", "native", before.capture, capture)
    assert "line (native)" in alone and "line (wait)" not in alone
