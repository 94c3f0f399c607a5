"""Each format as a program reads it that nobody here wrote: what it says must be what the samples add up to."""

import gzip
import json
import marshal
import os
import pstats
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict

import pytest

import descriptions
from reports import CONSUMERS, HERE, function_of, make, name_of, need, node, python_module

ROOT = HERE.parent.parent
NS = 1e9


def near(sums, scale=NS):
    return {key: pytest.approx(value / scale, abs=1e-6) for key, value in sums.items()}


# ---------------------------------------------------------------------------------------------------- collapsed ----


def plain(text):
    """Names in stacks that are lines: what would end a frame or a line is replaced."""
    return "".join("," if c == ";" else " " if c < " " or c in "\x85\u2028\u2029" else c for c in text)


def collapsed_frame(frame):
    parts = [frame["file"], function_of(frame), str(frame["line"])]
    return ":".join(plain(part) for part in parts if part not in ("", "-1"))


def test_collapsed_by_the_letter(report, small, truth):
    expected = Counter()
    for thread, stacks in truth.by_stack.items():
        about = small["threads"][thread]
        for path, weight in stacks.items():
            names = [f"thread {plain(about['name'])} ({about['native_id']})"]
            expected[";".join(names + [collapsed_frame(small["frames"][i]) for i in path])] += weight
    found = Counter()
    for line in report("collapsed").read_text(encoding="utf-8").split("\n")[:-1]:
        stack, _, weight = line.rpartition(" ")
        found[stack] += int(weight)
    # Whole microseconds; what is cut off one line goes to the next.
    assert found == {stack: pytest.approx(weight / 1000, abs=1) for stack, weight in expected.items()}
    assert sum(found.values()) == round(truth.total / 1000)


def test_collapsed_of_one_thread_names_no_thread(small, tmp_path):
    made = make(descriptions.single(small), "collapsed", tmp_path / "one").read_text()
    assert "thread " not in made and made.startswith(small["frames"][0]["file"])


def test_collapsed_read_by_flamegraph_textual(report, truth):
    parsers = python_module("flamegraph_textual.parsers")

    path = report("collapsed")
    profile = parsers.parse(path.read_bytes(), path.name)
    assert profile.root_stack.values[0] == round(truth.total / 1000)


def collapsed_stacks(path):
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return {stack: int(weight) for stack, _, weight in (line.rpartition(" ") for line in lines)}


def test_exclude_gives_frames_to_their_callers(hostile, truth, tmp_path):
    made = make(hostile, "collapsed", tmp_path / "made", "--exclude", "*/json/*")
    stacks = collapsed_stacks(made)
    assert sum(stacks.values()) == round(truth.total / 1000)
    assert not any("decoder.py" in stack for stack in stacks)
    assert any(stack.endswith("main:19") for stack in stacks)


def test_only_leaves_out_what_never_gets_there(hostile, truth, small, tmp_path):
    stacks = collapsed_stacks(make(hostile, "collapsed", tmp_path / "made", "--only", "*/json/*"))
    within = sum(weight for path, weight in truth.paths() if 6 in path)
    assert sum(stacks.values()) == pytest.approx(within / 1000, abs=1)


def test_one_thread(hostile, truth, tmp_path):
    stacks = collapsed_stacks(make(hostile, "collapsed", tmp_path / "made", "--thread", "1"))
    assert sum(stacks.values()) == pytest.approx(truth.by_thread[1] / 1000, abs=1)


# ------------------------------------------------------------------------------------------------------- pstats ----


def pstats_key(frame):
    if frame["kind"] != descriptions.PYTHON:
        return ("~", 0, function_of(frame))
    return (frame["file"], frame["first_line"], frame["function"])


def test_pstats(report, truth):
    stats = pstats.Stats(str(report("pstats"))).stats
    assert {key: value[3] for key, value in stats.items()} == near(truth.total_by(pstats_key))
    self_times = truth.self_by(pstats_key)
    assert {key: value[2] for key, value in stats.items()} == near({key: self_times[key] for key in stats})
    edges = {(caller, callee): times[3] for callee, value in stats.items() for caller, times in value[4].items()}
    assert edges == near(truth.edges(pstats_key))


def test_pstats_prints_and_adds(report, capsys):
    stats = pstats.Stats(str(report("pstats")))
    stats.add(str(report("pstats")))
    stats.strip_dirs().sort_stats("cumulative").print_stats()
    stats.print_callers()
    assert "app.py:10(grow)" in capsys.readouterr().out


# -------------------------------------------------------------------------------------------------------- pprof ----


def test_pprof_decoded_with_the_official_schema(report, small, truth):
    """profile_pb2 is what Google's compiler made of pprof's profile.proto."""
    profile_pb2 = python_module("flamegraph_textual.parsers.profile_pb2")

    profile = profile_pb2.Profile()
    profile.ParseFromString(gzip.decompress(report("pprof").read_bytes()))
    text = profile.string_table
    assert text[0] == ""
    types = [(text[kind.type], text[kind.unit]) for kind in profile.sample_type]
    assert ("wall", "nanoseconds") in types and text[profile.default_sample_type] == "wall"
    functions = {function.id: function for function in profile.function}
    locations = {location.id: location for location in profile.location}
    assert len(functions) == len(profile.function) and len(locations) == len(profile.location)

    def place(number):
        line = locations[number].line[0]
        function = functions[line.function_id]
        return text[function.name], text[function.filename], line.line, function.start_line

    expected, found = Counter(), Counter()
    for thread, stacks in truth.by_stack.items():
        for path, weight in stacks.items():
            frames = [small["frames"][i] for i in reversed(path)]
            places = tuple((name_of(f), f["file"], max(f["line"], 0), max(f["first_line"], 0)) for f in frames)
            expected[small["threads"][thread]["native_id"], places] += weight
    for sample in profile.sample:
        labels = {text[label.key]: label.num or text[label.str] for label in sample.label}
        assert len(sample.value) == len(types) and labels["pid"] == 4242
        found[labels["thread_id"], tuple(map(place, sample.location_id))] += sample.value[types.index(("wall", "nanoseconds"))]
    assert found == expected


def find_go():
    return shutil.which("go") or shutil.which("/usr/local/go/bin/go")


@pytest.mark.timeout(330)
def test_pprof_read_by_go(report, truth):
    go = need(find_go(), "go")
    command = [go, "tool", "pprof", "-top", "-nodecount=1000", "-nodefraction=0", "-unit=ns", report("pprof")]
    # It may have to be built first.
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    assert f"{truth.total}ns total" in finished.stdout
    # Those whose name is one word, for the output is words.
    rows = [line.split() for line in finished.stdout.splitlines() if line.count("%") == 3]
    found = {row[5]: (row[0], row[3]) for row in rows if len(row) == 6}
    for name in ("main", "Tree.grow", "leaf", "JSONDecoder.decode", "<native>"):
        expected = truth.self_by(name_of)[name], truth.total_by(name_of)[name]
        assert tuple(int(cell.removesuffix("ns")) for cell in found[name]) == expected


# --------------------------------------------------------------------------------------------------- speedscope ----


@pytest.fixture(scope="module")
def imported(report, tmp_path_factory):
    """What speedscope makes of four of the formats, by format."""
    folded = tmp_path_factory.mktemp("names") / "small.collapsed.txt"
    shutil.copy(report("collapsed"), folded)
    paths = {"speedscope": report("speedscope"), "chrome": report("chrome"), "collapsed": folded, "pprof": report("pprof")}
    results = dict(zip(paths, node("speedscope.mjs", *paths.values())))
    for format, result in results.items():
        assert result["errors"] == [], format
    return {format: result["imported"] for format, result in results.items()}


def totals_of(document, profile, names_of_frames, least=1e-9):
    """Weight of each stack of frames' names in an evented profile, but for what has hardly any."""
    names = [names_of_frames(frame) for frame in document["shared"]["frames"]]
    sums, stack, last = Counter(), [], 0
    for event in profile["events"]:
        if stack:
            sums[tuple(stack)] += event["at"] - last
        last = event["at"]
        if event["type"] == "O":
            stack.append(names[event["frame"]])
        else:
            assert stack.pop() == names[event["frame"]]
    return {path: weight for path, weight in sums.items() if weight > least}


def by_path(truth, thread, key):
    sums = Counter()
    for path, weight in truth.by_stack[thread].items():
        sums[tuple(key(truth.description["frames"][number]) for number in path)] += weight
    return sums


def test_speedscope_imports_its_own_format(imported, truth, small):
    document = imported["speedscope"]
    wall = [profile for profile in document["profiles"] if profile["name"].endswith(": wall")]
    assert len(wall) == 3 and all(profile["unit"] == "seconds" for profile in wall)
    for thread, profile in enumerate(wall):
        found = totals_of(document, profile, lambda frame: (frame["name"], frame.get("file", ""), frame.get("line", -1)))
        expected = by_path(truth, thread, lambda frame: (name_of(frame), frame["file"], frame["line"]))
        assert found == near(expected)
    counts = [profile for profile in document["profiles"] if profile["name"].endswith(": samples")]
    assert [(profile["unit"], profile["endValue"]) for profile in counts] == [("none", 600)] * 3


def test_speedscope_fits_its_schema(report):
    jsonschema = python_module("jsonschema")
    schema = CONSUMERS / "node_modules" / "speedscope" / "dist" / "release" / "file-format-schema.json"
    need(schema.is_file(), "speedscope")
    jsonschema.validate(json.loads(report("speedscope").read_text()), json.loads(schema.read_text()))


def test_speedscope_imports_collapsed(imported, truth):
    (profile,) = imported["collapsed"]["profiles"]
    assert profile["endValue"] == round(truth.total / 1000)


def test_speedscope_imports_pprof(imported, truth):
    (profile,) = imported["pprof"]["profiles"]
    assert (profile["endValue"], profile["unit"]) == (truth.total, "nanoseconds")


# ------------------------------------------------------------------------------------------------------- chrome ----


def chrome_name(frame):
    return f"{name_of(frame)} ({frame['file']}:{frame['first_line']})" if frame["file"] else name_of(frame)


def timeline(description, thread):
    """[start, end, names] of each sample: from its weight ago, or the sample before, to its time."""
    end = 0
    for number, stack, time, weight, _ in description["samples"]:
        if number == thread:
            start = max(end, time - weight)
            end = time
            yield start, time, tuple(chrome_name(description["frames"][i]) for i in description["stacks"][stack])


def test_chrome_events_follow_the_format(report, small):
    """Begins and ends match in each thread, times never go back, and every instant of a sample shows its stack."""
    events = json.loads(report("chrome").read_text())["traceEvents"]
    names = {(event["tid"], event["args"]["name"]) for event in events if event["name"] == "thread_name"}
    assert names == {(thread["native_id"], thread["name"]) for thread in small["threads"]}
    for number, thread in enumerate(small["threads"]):
        looks = list(timeline(small, number))
        stack, changes = [], []
        for event in events:
            if event["tid"] != thread["native_id"] or event["ph"] not in "BE":
                continue
            if event["ph"] == "B":
                stack.append(event["name"])
            else:
                assert stack.pop() == event["name"]
            changes.append((round(event["ts"] * 1000), tuple(stack)))
        assert stack == [] and changes == sorted(changes, key=lambda change: change[0])
        at = 0
        for start, end, expected in looks:
            middle = (start + end) // 2
            while at + 1 < len(changes) and changes[at + 1][0] <= middle:
                at += 1
            assert changes[at][1] == expected


def test_speedscope_imports_chrome(imported, truth, small):
    """Durations are between looks, so they differ a little from the weights."""
    document = imported["chrome"]
    assert len(document["profiles"]) == 3
    for thread, profile in enumerate(document["profiles"]):
        # There is a nanosecond between what ends and what begins.
        found = totals_of(document, profile, lambda frame: frame["name"], least=10)
        expected = Counter()
        for start, end, names in timeline(small, thread):
            expected[names] += end - start
        assert set(found) == set(expected)
        assert sum(found.values()) * 1000 == pytest.approx(sum(expected.values()), rel=0.12)


# -------------------------------------------------------------------------------------------------------- gecko ----


class FirefoxProfiler:
    """The Firefox Profiler on the command line: it loads a file as the web page does and answers questions."""

    SCRIPT = CONSUMERS / "node_modules" / "@firefox-devtools" / "profiler-cli" / "dist" / "profiler-cli.js"

    def __init__(self, path):
        need(shutil.which("node") and self.SCRIPT.is_file(), "@firefox-devtools/profiler-cli")
        # In a folder with a short name: it holds a socket.
        self.folder = tempfile.mkdtemp(prefix="strobe")
        self.env = {**os.environ, "PROFILER_CLI_SESSION_DIR": self.folder, "PROFILER_CLI_NO_SYMBOLICATE": "1"}
        # Started here and not by its `load`, which gives a slow machine half a second.
        self.log = open(os.path.join(self.folder, "output"), "w+")
        command = ["node", self.SCRIPT, "--daemon", path, "--session", "strobe"]
        self.daemon = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=self.env)

    def run(self, *words):
        command = ["node", self.SCRIPT, *words, "--session", "strobe", "--json"]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env=self.env)

    def ask(self, *words):
        finished = self.run(*words)
        assert finished.returncode == 0, finished.stdout[-1000:] + finished.stderr[-1000:]
        return json.loads(finished.stdout)

    def __enter__(self):
        # Asked earlier, its answer may never come.
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.folder, "strobe.sock")):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                output = open(self.log.name).read()[-2000:]
                self.__exit__()
                pytest.fail(output)
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.daemon.kill()
        self.daemon.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def functions(self, thread):
        """Self and total in milliseconds, by function's name."""
        answer = self.ask("thread", "functions", "--thread", f"t-{thread}")
        assert answer["weightType"] == "tracing-ms"
        sums = defaultdict(lambda: [0, 0])
        for function in answer["functions"]:
            sums[function["name"]][0] += function["selfSamples"]
            sums[function["name"]][1] += function["totalSamples"]
        return dict(sums)


def per_thread(truth, thread, key):
    """{name: [self, total]} of a thread, in nanoseconds."""
    sums = defaultdict(lambda: [0, 0])
    for path, weight in truth.by_stack[thread].items():
        names = [key(truth.description["frames"][number]) for number in path]
        sums[names[-1]][0] += weight
        for name in set(names):
            sums[name][1] += weight
    return {name: pytest.approx([amount / 1e6 for amount in pair], abs=1e-3) for name, pair in sums.items()}


def test_gecko_loads_in_the_firefox_profiler(report, small, truth):
    with FirefoxProfiler(report("gecko")) as profiler:
        info = profiler.ask("profile", "info")
        (process,) = info["processes"]
        assert (process["pid"], info["threadCount"]) == ("4242", 3)
        named = {thread["threadHandle"]: (thread["tid"], thread["name"]) for thread in process["threads"]}
        for number, thread in enumerate(small["threads"]):
            assert named[f"t-{number}"] == (thread["native_id"], thread["name"])
            found, expected = profiler.functions(number), per_thread(truth, number, name_of)
            # It shortens what looks like C++ to it.
            found = {name: sums for name, sums in found.items() if "漢" not in name}
            assert found == {name: sums for name, sums in expected.items() if "漢" not in name}


def test_gecko_says_when_threads_ran(report, small):
    """CPU time is what the samples of running threads stand for; the profiler has no use for a thread's first one."""
    with FirefoxProfiler(report("gecko")) as profiler:
        (process,) = profiler.ask("profile", "info")["processes"]
        for thread in process["threads"]:
            samples = [sample for sample in small["samples"] if f"t-{sample[0]}" == thread["threadHandle"]]
            ran = sum(sample[3] for sample in samples if sample[4] == descriptions.RUNNING) / 1e6
            assert thread["cpuMs"] == pytest.approx(ran, rel=0.06)


def test_chrome_loads_in_the_firefox_profiler(report, small):
    with FirefoxProfiler(report("chrome")) as profiler:
        info = profiler.ask("profile", "info")
        assert sum(len(process["threads"]) for process in info["processes"]) >= 3


# --------------------------------------------------------------------------------------------------------- json ----


def test_json_fits_the_schema(report):
    jsonschema = python_module("jsonschema")
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(report("json").read_text()))


def test_json_charges_user_lines(report, small, truth, app):
    document = json.loads(report("json").read_text())
    assert document["samples"] == small["counters"]
    assert document["command"] == small["processes"][0]["command"] and document["pid"] == 4242
    expected, totals = Counter(), Counter()
    for path, weight in truth.paths():
        user = [f for f in (small["frames"][i] for i in path) if f["file"] and f["file"] != descriptions.LIBRARY]
        expected[user[-1]["file"], user[-1]["line"]] += weight
        for place in {(f["file"], f["line"]) for f in user}:
            totals[place] += weight
    lines = {(file["path"], line["line"]): line for file in document["files"] for line in file["lines"]}
    found = {place: line["wall_s"] for place, line in lines.items()}
    assert found == near({place: expected[place] for place in found})
    assert {place: line["total_wall_s"] for place, line in lines.items()} == near(totals)
    assert sum(expected.values()) == truth.total == sum(expected[place] for place in found)


def test_json_leaves_out_what_was_not_taken(report, small, app, tmp_path):
    def keys(document):
        return {key for file in document["files"] for line in file["lines"] for key in line}

    assert not {"alloc_bytes", "cpu_s", "gpu_s"} & keys(json.loads(report("json").read_text()))
    stack = 1
    measured = {**small, "values": [[0, stack, "cpu_python", 5], [0, stack, "alloc_bytes", 4096]]}
    document = json.loads(make(measured, "json", tmp_path / "measured.json").read_text())
    assert {"alloc_bytes", "cpu_s"} <= keys(document) and "gpu_s" not in keys(document)
    line = next(line for file in document["files"] for line in file["lines"] if line["line"] == 5)
    assert line["alloc_bytes"] == 4096 and set(line["cpu_s"]) == {"python"}


# ---------------------------------------------------------------------------------------------------------- svg ----


def test_svg_is_xml_with_a_title_for_each_box(report, truth):
    """Widths are in proportion, and no box is wider than the one it stands in."""
    root = ElementTree.parse(report("svg")).getroot()
    space = "{http://www.w3.org/2000/svg}"
    widths = defaultdict(float)
    for group in root.iter(f"{space}g"):
        title = group.find(f"{space}title").text
        widths[title.split("\n")[0]] += float(group.find(f"{space}rect").get("width")) if "(100" not in title else 0
        assert " %), self " in title
    whole = 1200 - 2 * 12
    assert widths["JSONDecoder.decode"] == pytest.approx(whole * truth.total_by(name_of)["JSONDecoder.decode"] / truth.total, abs=0.1)


# -------------------------------------------------------------------------------------------------------- empty ----


@pytest.mark.parametrize("format", ["json", "html", "collapsed", "speedscope", "pprof", "gecko", "chrome", "pstats", "svg", "table"])
@pytest.mark.parametrize("description", [{}, {"processes": [{}], "threads": [{}]}], ids=["nothing", "no samples"])
def test_a_profile_without_samples(format, description, tmp_path):
    made = make(description, format, tmp_path / "empty").read_bytes()
    if format in ("json", "speedscope", "gecko", "chrome"):
        json.loads(made)
    elif format == "pstats":
        # Which pstats.Stats refuses, as it does what cProfile writes of nothing.
        assert marshal.loads(made) == {}


@pytest.mark.parametrize("format", ["html", "speedscope", "gecko", "chrome", "pstats", "svg", "pprof", "json", "table"])
def test_every_format_keeps_its_sum_without_the_excluded(format, hostile, truth, tmp_path):
    path = make(hostile, format, tmp_path / f"made.{format}", "--exclude", "*/json/*")
    if format == "pstats":
        stats = pstats.Stats(str(path)).stats
        assert sum(times[2] for times in stats.values()) == pytest.approx(truth.total / NS)
        assert not any(key[0] == descriptions.LIBRARY for key in stats)
    elif format == "speedscope":
        document = json.loads(path.read_text())
        weights = [sum(p["weights"]) for p in document["profiles"] if p["name"].endswith(": wall")]
        assert sum(weights) == pytest.approx(truth.total / NS)
