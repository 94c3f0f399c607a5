"""Memory in the formats: what lines held over time and at the peak, margins, leaks; and nothing of what was not taken."""

import gzip
import json
import math

import pytest

import memory_capture as memory
from made_captures import MS, START_NS, frame, report
from memory_capture import BRIEF, CACHE, LEAK, MIB, PEAK_TICK, TICK_NS, TICKS, live_mib
from reports import HERE, node, python_module

ROOT = HERE.parent.parent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    run = memory.MemoryRun(folder)
    run.capture = run.write(folder / "service.strobe")
    return run


@pytest.fixture(scope="module")
def document(run):
    return json.loads(report(run.capture, "json"))


# --------------------------------------------------------------------------------------------------------- json ----


def test_json_fits_its_schema(document):
    jsonschema = python_module("jsonschema")
    jsonschema.validate(document, json.loads((ROOT / "docs" / "report.schema.json").read_text()))


def at(timeline, time_s):
    """On the straight line between two points."""
    for (from_s, before), (to_s, after) in zip(timeline, timeline[1:]):
        if from_s <= time_s <= to_s:
            return after if to_s == from_s else before + (after - before) * (time_s - from_s) / (to_s - from_s)
    return timeline[-1][1] if time_s > timeline[-1][0] else 0


def test_json_says_what_lines_held_over_time(run, document):
    assert document["memory"]["peak_bytes"] == run.peak_bytes()
    found = {line["line"]: line for line in document["memory"]["lines"]}
    # The brief one is between two of the moments that the most is looked for at, but the timeline has it.
    assert set(found) == {LEAK, CACHE, BRIEF} and document["memory"]["lines"][0]["line"] == LEAK
    for line in (LEAK, CACHE, BRIEF):
        timeline = found[line]["timeline"]
        assert len(timeline) <= 100
        for tick in range(1, TICKS + 1):
            assert at(timeline, tick * TICK_NS / 1e9) == pytest.approx(live_mib(line, tick) * MIB, abs=MIB / 100), (line, tick)
    assert found[LEAK]["most_bytes"] == TICKS * MIB and found[CACHE]["most_bytes"] == 20 * MIB


def test_json_tells_the_leak(document):
    (leak,) = document["memory"]["leaks"]
    assert (leak["line"], leak["function"], leak["survivors"]) == (LEAK, "leak", TICKS)
    assert leak["live_bytes"] == TICKS * MIB
    assert leak["bytes_per_s"] == pytest.approx(MIB / (TICK_NS / 1e9), rel=0.01)
    assert leak["age_s"] == pytest.approx(TICKS / 2 * TICK_NS / 1e9, rel=0.05)
    assert leak["likelihood"] > 0.95


def test_json_has_margins(document):
    lines = {line["line"]: line for file in document["files"] for line in file["lines"] if file["path"].endswith("service.py")}
    # 1.96 standard deviations of 512 KiB, of the peak twice that; and as much as 1.96 of the samples stand for.
    for measure, deviation in (("live_bytes", 512 * 1024), ("peak_bytes", 1024 * 1024)):
        margin = 1.96 * math.hypot(deviation, 1.96 * deviation**2 / lines[LEAK][measure])
        assert lines[LEAK][measure + "_margin"] == pytest.approx(margin, abs=2)


MEMORY = {"alloc_bytes", "alloc_count", "peak_bytes", "live_bytes", "live_count", "python_bytes", "temporary_bytes"}


def test_json_has_of_each_process_what_was_taken_of_it(document):
    """Of the one CPU time in parts and memory, of the other wall time, running and waiting."""
    ours, other = (set(process["sampled"]) for process in document["processes"])
    assert MEMORY <= ours and "cpu_s" in ours and not {"wall_s", "wait_s"} & ours
    assert not MEMORY & other and "cpu_s" not in other and {"wall_s", "wait_s", "self_cpu_s"} <= other
    assert "memory" not in document["processes"][1]
    (line,) = next(file["lines"] for file in document["files"] if file["path"] == "/srv/other.py")
    assert not [key for key in line if key.startswith(("alloc", "peak", "live", "cpu_s"))]
    assert line["wait_s"] == line["self_cpu_s"] == pytest.approx(0.02)


@pytest.mark.parametrize("has_footprint", [False, True])
def test_allocations_alone_do_not_say_what_lived(tmp_path, has_footprint):
    stack = [frame("f", "/x.py", 3, 1)]
    records = [{"record": "event", "thread": 1, "stack": stack, "time_ns": START_NS + MS, "values": {"8": 5 << 20, "9": 1}}]
    if has_footprint:
        names = "footprint_bytes peak_bytes peak_ns inherited_bytes stride_bytes lost_records".split()
        records.append({"record": "footprint", "number": 0, "time_ns": START_NS + MS, "points": [], **dict.fromkeys(names, 0)})
    document = json.loads(report(memory.write_records(tmp_path / "x.strobe", records), "json"))
    (line,) = document["files"][0]["lines"]
    assert line["alloc_bytes"] == 5 << 20
    for measure in MEMORY - {"alloc_bytes", "alloc_count"}:
        assert line.get(measure) == (0 if has_footprint else None), measure


# -------------------------------------------------------------------------------------------------------- pprof ----


def test_pprof_has_heap_types(run, tmp_path):
    profile_pb2 = python_module("flamegraph_textual.parsers.profile_pb2")
    profile = profile_pb2.Profile()
    profile.ParseFromString(gzip.decompress(report(run.capture, "pprof", tmp_path / "x.pb.gz").read_bytes()))
    text = profile.string_table
    types = [(text[kind.type], text[kind.unit]) for kind in profile.sample_type]
    heap = [("alloc_space", "bytes"), ("alloc_objects", "count"), ("inuse_space", "bytes"), ("inuse_objects", "count"), ("peak_space", "bytes")]
    assert set(heap) <= set(types)
    sums = {}
    functions = {function.id: text[function.name] for function in profile.function}
    locations = {location.id: functions[location.line[0].function_id] for location in profile.location}
    for sample in profile.sample:
        values = dict(zip(types, sample.value))
        leaf = locations[sample.location_id[0]]
        for kind in heap:
            sums[leaf, kind[0]] = sums.get((leaf, kind[0]), 0) + values[kind]
    for name, line in (("leak", LEAK), ("fill", CACHE), ("brief", BRIEF)):
        end, most = live_mib(line, TICKS), max(live_mib(line, tick) for tick in range(TICKS + 1))
        expected = {"alloc_space": most * MIB, "alloc_objects": most, "inuse_space": end * MIB, "inuse_objects": end}
        expected["peak_space"] = live_mib(line, PEAK_TICK) * MIB
        assert {kind: sums[name, kind] for kind in expected} == expected, name


# --------------------------------------------------------------------------------------------------------- html ----


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    path = report(run.capture, "html", folder / "memory.html")
    (seen,) = node("memory-page.mjs", path, folder)
    return seen


def test_nothing_goes_wrong(page):
    assert page["errors"] == []


def test_the_page_shows_memory_over_time(page):
    facts = page["facts"]
    assert f"peak 144 MiB after {PEAK_TICK * TICK_NS / 1e9:.3f} s" in facts and "120 MiB at the end" in facts
    assert page["legend"][:2] == ["footprint", f"service.py:{LEAK}"]
    assert sorted(page["legend"][2:]) == sorted(f"service.py:{line}" for line in (CACHE, BRIEF))
    assert page["polylines"] == 4
    # At half of the time.
    assert page["hover"][1].startswith(f"service.py:{LEAK} 50.") and f"service.py:{CACHE} 20.0 MiB" in page["hover"]


def test_the_page_lists_leaks(page):
    (row,) = page["leaks"]
    likelihood, rate, live, blocks, _, age, place, source = row
    assert float(likelihood.split()[0]) > 95 and rate == "20.0 MiB/s" and live == "100 MiB" and blocks == "100"
    assert place == f"service.py:{LEAK}" and source == "kept.append(bytearray(1 << 20))"
    assert float(age.split()[0]) == pytest.approx(2.5, abs=0.1)


def test_the_page_lists_the_peak_by_line(page):
    places = [row[4] for row in page["peak"]]
    assert places == [f"service.py:{line}" for line in (BRIEF, LEAK, CACHE)]
    assert page["peak"][1][:4] == ["60.0 ±2.0 MiB", f"{100 * 60 / 144:.1f} %", "100 MiB", "100 MiB"]


def test_places_open_their_source(page):
    assert page["opened"] == {"shown": "lines", "target": LEAK}


def test_lines_have_margins(page):
    assert "100 ±1.0 MiB" in page["lines"][LEAK - 1]


def test_the_flame_graph_of_the_peak(page):
    assert page["flame"] == {"shown": "flame", "measure": "peak_bytes", "total": 144 * MIB, "pressed": ["peak"]}
    assert page["switch"] == ["CPU", "waiting", "allocated", "peak", "live"]


def test_pages_of_attach_show_waiting_and_no_memory(tmp_path):
    stack = [frame("f", "/x.py", 3, 1)]
    records = [
        {
            "record": "sample", "thread": 1, "stack": stack, "time_ns": START_NS + tick * MS, "weight_ns": MS,
            "run": 2 if tick % 4 else 1, "gil": 0, "collecting": False,
        }
        for tick in range(1, 41)
    ]  # fmt: skip
    capture = memory.write_records(tmp_path / "x.strobe", [{"record": "process", **ATTACHED}, *records])
    (seen,) = node("memory-page.mjs", report(capture, "html", tmp_path / "x.html"), tmp_path)
    assert seen["errors"] == [] and seen["tabs"] == ["Flame graph", "Lines", "Functions", "Threads"]
    assert seen["switch"] == []
    assert seen["measures"] == {"cpu": 10 * MS, "wall": 40 * MS, "wait": 30 * MS, "samples": 40}
    assert seen["first"] == "cpu"
    (seen,) = node("memory-page.mjs", report(capture, "html", tmp_path / "idle.html", "--idle"), tmp_path)
    assert seen["first"] == "wall"


ATTACHED = {
    "number": 0, "pid": 4242, "parent_pid": 0, "version": 0x030E00F0, "flags": 0, "mode": 0, "origin": 0,
    "rate_mhz": 1_000_000, "start_unix_ns": 1_790_000_000_000_000_000, "start_ns": START_NS, "command": ["python3", "x.py"],
    "libraries": [],
}  # fmt: skip
