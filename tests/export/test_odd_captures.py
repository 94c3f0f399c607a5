"""Captures with what is rare in each format: the report is made, and says the same."""

import json
import os
import pstats
import shutil
import subprocess
import unicodedata
from collections import Counter
from xml.etree import ElementTree

import pytest

import made_captures as captures
from made_captures import MS, frame, report
from reports import HERE, need, node
from test_formats import FirefoxProfiler, find_go
from test_run_exports import on_terminal, without_colours

ROOT = HERE.parent.parent
FORMATS = ["json", "html", "collapsed", "speedscope", "pprof", "gecko", "chrome", "pstats", "svg", "table"]
# As long as a text in a capture can be; each byte is shown as four.
LONGEST = "\x01" * ((1 << 16) - 1)


def one(command=("python3", "x.py"), thread="MainThread", function="f", file="/x.py"):
    run = captures.Run(list(command))
    main = run.thread(thread)
    run.thread("another")
    run.spend(main, [frame(function, file, 3, 1)], python=40 * MS)
    return run


@pytest.fixture(scope="module", params=["command", "thread", "function"])
def long_texts(request, tmp_path_factory):
    made = {
        "command": lambda: one(["python3", *[LONGEST] * 15]),
        "thread": lambda: one(thread=LONGEST),
        "function": lambda: one(function=LONGEST, file=LONGEST[:-1]),
    }
    return made[request.param]().write(tmp_path_factory.mktemp("long") / "long.strobe")


@pytest.mark.parametrize("format", FORMATS)
def test_the_longest_texts_are_no_trouble(long_texts, format, tmp_path):
    assert report(long_texts, format, tmp_path / "made").stat().st_size > 0


def test_a_long_command_is_cut_where_it_is_a_title(tmp_path):
    capture = one(["python3", "é" * 30_000, "b" * 60_000]).write(tmp_path / "long.strobe")
    title = json.loads(report(capture, "gecko"))["meta"]["product"]
    assert title.startswith("python3 éé") and title.endswith("é…") and 4000 < len(title.encode()) < 4200
    assert json.loads(report(capture, "json"))["command"] == ["python3", "é" * 30_000, "b" * 60_000]


def test_svg_is_xml_whatever_the_names(tmp_path):
    capture = one(["python3", "x]]>y"], function="]]>", file="/a]]>.py").write(tmp_path / "x.strobe")
    root = ElementTree.fromstring(report(capture, "svg"))
    titles = [title.text.split("\n")[:2] for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [["]]>", "/a]]>.py:1"]]


# ------------------------------------------------------------------------------------------------------- sources ------

SOURCES = {
    "app.py": (True, b"SECRET = 1\n"),
    "gui.pyw": (True, b"SECRET = 1\n"),
    "latin.py": (True, b"# vim: set fileencoding=latin-1 :\nSECRET = '\xe9'\n"),
    "utf8.py": (True, "SECRET = 'é'\n".encode()),
    "empty-first.py": (True, b"\n\nSECRET = 1"),
    "script": (True, b"#! /usr/bin/env python3\nSECRET = 1\n"),
    "id_rsa": (False, b"SECRET = 1\n"),
    "app.py.key": (False, b"SECRET = 1\n"),
    "run.sh": (False, b"#!/bin/sh\nSECRET=python\n"),
    "binary.py": (False, b"SECRET = 1\n\0"),
    "bytes.py": (False, b"SECRET = '\xe9'\n\n# coding: latin-1\n"),
}


def shown_sources(path, *files):
    """Which of the files' texts the table, its comparison and the page have."""
    made = []
    for time in (40 * MS, 80 * MS):
        run = captures.Run(["python3", "x.py"])
        thread = run.thread("MainThread")
        for file in files:
            for line in (1, 2, 3):
                run.spend(thread, [frame("f", str(file), line, 1)], python=time)
        made.append(run.write(path / f"{time}.strobe"))
    capture = made[0]
    command = [captures.STROBE, "diff", "--as-is", *made]
    diff = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    return ["SECRET" in text for text in (report(capture, "table"), diff, report(capture, "html"))]


@pytest.mark.parametrize("name", SOURCES)
def test_only_python_is_shown_as_source(tmp_path, name):
    is_shown, text = SOURCES[name]
    (tmp_path / name).write_bytes(text)
    assert shown_sources(tmp_path, tmp_path / name) == [is_shown] * 3


def test_a_link_is_what_it_leads_to(tmp_path):
    (tmp_path / "key").write_bytes(b"SECRET = 1\n")
    (tmp_path / "real.py").write_bytes(b"SECRET = 1\n")
    (tmp_path / "to-key.py").symlink_to("key")
    (tmp_path / "to-real").symlink_to("real.py")
    assert shown_sources(tmp_path, tmp_path / "to-key.py") == [False] * 3
    assert shown_sources(tmp_path, tmp_path / "to-real") == [True] * 3


def test_what_is_no_regular_file_or_too_large_is_no_source(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "device.py").symlink_to("/dev/zero")
    (tmp_path / "large.py").write_bytes(b"SECRET = 1\n")
    os.truncate(tmp_path / "large.py", (64 << 20) + 1)
    names = ["pipe.py", "folder.py", "device.py", "large.py"]
    assert shown_sources(tmp_path, *[tmp_path / name for name in names]) == [False] * 3


# ------------------------------------------------------------------------------------------------------- the table ----


def memory_run(path, **amounts):
    """A run that allocated on one line, and had its peak when there was nothing of that line."""
    run = captures.Run(["python3", "x.py"])
    run.spend(run.thread("MainThread"), [frame("f", "/x.py", 3, 1)], **amounts)
    now = captures.START_NS + MS
    footprint = {
        "footprint_bytes": 5 << 20, "peak_bytes": 9 << 20, "inherited_bytes": 0, "stride_bytes": 1 << 19, "lost_records": 0,
        "peak_ns": now, "points": [[now, 5 << 20]],
    }  # fmt: skip
    run.records.append({"record": "footprint", "number": 0, "time_ns": now, **footprint})
    return run.write(path)


def test_nothing_at_the_peak_is_said(tmp_path):
    capture = memory_run(tmp_path / "x.strobe", alloc_bytes=3 << 20)
    text = report(capture, "table")
    assert "\nmemory: 3.0 MiB allocated, 0 B at the peak by line (of 9.0 MiB in all)\n" in text
    assert ", 0 B at the peak\n" in report(capture, "table", None, "--threads")


def test_a_narrow_terminal_shows_all_of_the_memory_line(tmp_path):
    capture = memory_run(tmp_path / "x.strobe", alloc_bytes=3 << 20, peak_bytes=6 << 20, live_bytes=1 << 20)
    for columns in range(20, 60, 3):
        words = " ".join(on_terminal(capture, columns).split())
        assert "memory: 3.0 MiB allocated, 6.0 MiB at the peak, 1.0 MiB live at the end" in words, columns


@pytest.mark.parametrize("amount, shown", [((1 << 30) - 1, "1023 MiB"), (1000 << 20, "1000 MiB"), ((1000 << 20) - 1, "999.9 MiB")])
def test_amounts_fit_their_column(tmp_path, amount, shown):
    text = report(memory_run(tmp_path / "x.strobe", alloc_bytes=amount), "table", None, "--measure", "alloc")
    head, line = (row for row in text.split("\n\n")[1].split("\n")[1:3])
    assert line.startswith(f"{shown:>9} 100.0%") and head.index("alloc") + 5 == 9


def test_a_long_heading_stands_over_its_column(tmp_path):
    text = report(memory_run(tmp_path / "x.strobe", alloc_bytes=4, alloc_count=7), "table", None, "--measure", "alloc_count")
    head, line = (row for row in text.split("\n\n")[1].split("\n")[1:3])
    assert head.index("alloc_count") + len("alloc_count") == line.index("7") + 1


@pytest.fixture
def mixed(tmp_path):
    """A run, and in its capture a process that was looked at from outside."""
    run = one()
    number = run.process(["python3", "y.py"])
    run.records[-1] |= {"mode": 0, "origin": 0}
    run.records.append(
        {
            "record": "sample", "thread": run.thread("outside", number), "stack": [frame("g", "/y.py", 3, 1)],
            "time_ns": run.now + MS, "weight_ns": MS, "run": 1, "gil": 0, "collecting": False,
        }  # fmt: skip
    )
    return run.write(tmp_path / "mixed.strobe")


def test_parts_that_nobody_measured_are_not_nothing(mixed):
    inside, outside = report(mixed, "table", None, "--threads").split("\n\n\n")
    assert "\nCPU 40.0 ms: █ python 100%" in inside and "\nCPU 1.0 ms\n" in outside


def test_many_threads_cost_what_they_did(tmp_path):
    """A look at everything for each of them would take minutes; report() waits for one."""
    run, count = captures.Run(["python3", "x.py"]), 20_000
    for number in range(count):
        stack = [frame(f"f{depth}", "/x.py", 1 + 8 * number + depth, 1) for depth in range(8)]
        run.spend(run.thread(f"worker-{number}"), stack, python=MS)
    tables = report(run.write(tmp_path / "x.strobe"), "table", None, "--threads").split("\n\n\n")
    assert len(tables) == count
    for number in (0, 1, count // 2, count - 1):
        table = tables[number]
        assert table.startswith(f"thread worker-{number} ({4242 + number})\n") and "\nCPU 1.0 ms: █ python 100%" in table
        assert f" {8 * number + 8} " in table and f" {8 * number + 9} " not in table


def test_the_page_says_nothing_of_them(mixed, tmp_path):
    (page,) = node("page-lines.mjs", report(mixed, "html", tmp_path / "x.html"))
    assert page["summaries"]["[4242] MainThread"] == "CPU 40.0 mspython 100.0 %native 0.0 %kernel 0.0 %"
    assert page["summaries"]["[4243] outside"] == "CPU 1.00 ms" and page["errors"] == []


def columns_of(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def test_what_is_wide_fits_the_terminal(tmp_path):
    """Ideographs, emoji of the first and of other planes, marks."""
    (tmp_path / "漢字.py").write_text("a = '" + "⚡漢✅" * 60 + "'\nb = '" + "😀é" * 90 + "'\n")
    run = one(["python3", "⭐" * 100], thread="⏰" * 60, function="関数" * 40, file="/srv/" + "漢字" * 60 + "/x.py")
    for line in (1, 2):
        run.spend(2, [frame("f", str(tmp_path / "漢字.py"), line, 1)], python=40 * MS)
    capture = run.write(tmp_path / "x.strobe")
    for columns in range(54, 160, 9):
        for line in without_colours(on_terminal(capture, columns)).split("\n"):
            assert columns_of(line) <= columns or line.startswith("process "), line


def test_a_very_long_line_is_cut_between_characters(tmp_path):
    (tmp_path / "x.py").write_text("xy = '" + "漢" * 1000 + "'\n")
    run = captures.Run(["python3", "x.py"])
    run.spend(run.thread("MainThread"), [frame("f", str(tmp_path / "x.py"), 1, 1)], python=40 * MS)
    (line,) = [line for line in report(run.write(tmp_path / "x.strobe"), "table").split("\n") if "xy = " in line]
    assert line.endswith("漢…") and "\\x" not in line


def test_diff_counts_only_lines_with_something(tmp_path):
    runs = {"before": one(), "after": one()}
    for name, lines in ("before", [10]), ("after", range(10, 20)):
        for line in lines:
            runs[name].spend(1, [frame("f", "/x.py", line, 1)], alloc_bytes=1 << 20)
    command = [captures.STROBE, "diff", *(run.write(tmp_path / name) for name, run in runs.items())]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    allocated = text.split(" line (alloc)\n")[1]
    assert allocated.count("+1.0 MiB") == 9 and allocated.count(" more line") == 1


# -------------------------------------------------------------------------------------------------------- the page ----

ENCODER = "/usr/lib/python3.14/json/encoder.py"
CHOICES = [(), ("--all",), ("--only", "*/json/*"), ("--exclude", "*/json/*"), ("--all", "--exclude", "*/encoder.py")]


def library_run():
    """Imports, what a library runs that stands in a string, threads of a library's own."""
    run = captures.Run(["python3", "x.py"])
    main, other = run.thread("MainThread"), run.thread("helper")
    user, imports = frame("<module>", "/x.py", 2, 1), frame("_find_and_load", "<frozen importlib._bootstrap>", 1360, 1340)
    module = frame("<module>", "/usr/lib/python3.14/json/__init__.py", 1, 1)
    run.spend(main, [user], python=8 * MS, alloc_bytes=100)
    run.spend(main, [user, imports, module], python=16 * MS, wait=5 * MS)
    run.spend(other, [module, imports], python=32 * MS, alloc_bytes=3000)
    run.spend(other, [imports], kernel=64 * MS)
    run.spend(other, [frame("call", ENCODER, 9, 7), frame("__new__", "<string>", 1, 1)], python=128 * MS)
    run.spend(main, [user, frame("call", ENCODER, 9, 7), frame("<lambda>", "<string>", 1, 1)], python=256 * MS)
    run.spend(main, [user, frame("<lambda>", "<string>", 1, 1)], "PyDict_New", captures.PYTHON, native=512 * MS)
    return run


def lines_of_report(document):
    """As page-lines.mjs has them."""
    names = {"cpu": "self_cpu_s total_cpu_s", "wait": "wait_s total_wait_s", "alloc_bytes": "alloc_bytes total_alloc_bytes"}
    lines = {}
    for file in document["files"]:
        for line in file["lines"]:
            for name, keys in names.items():
                amounts = [line.get(key, 0) * (1 if name == "alloc_bytes" else 1e9) for key in keys.split()]
                if any(amounts):
                    lines.setdefault(f"{file['path']}:{line['line']}", {})[name] = pytest.approx(amounts)
    return lines


def test_the_page_charges_lines_as_the_others_do(tmp_path):
    capture = library_run().write(tmp_path / "x.strobe")
    pages = [report(capture, "html", tmp_path / f"{i}.html", *choice) for i, choice in enumerate(CHOICES)]
    for choice, page in zip(CHOICES, node("page-lines.mjs", *pages)):
        shown = {
            place: {name: pair for name, pair in amounts.items() if name in ("cpu", "wait", "alloc_bytes")}
            for place, amounts in page["lines"].items()
        }
        assert page["errors"] == []
        assert shown == lines_of_report(json.loads(report(capture, "json", None, *choice))), choice


def test_the_page_of_next_to_nothing_works(tmp_path):
    nothing, parts = captures.Run(["python3", "x.py"]), captures.Run(["python3", "x.py"])
    parts._event(parts.thread("MainThread"), [frame("f", "/x.py", 3, 1)], {"python": 5})
    runs = {"nothing": nothing, "parts": parts}
    pages = [report(run.write(tmp_path / name), "html", tmp_path / f"{name}.html") for name, run in runs.items()]
    assert [page["errors"] for page in node("page-lines.mjs", *pages)] == [[], []]


def test_times_of_a_minute_and_more():
    program = "eval(require('fs').readFileSync(process.argv[1]) + ';console.log(process.argv.slice(2).map(format.time).join())')"
    times = [59_400_000_000, 59_999_000_000, 119_700_000_000, 3_600_000_000_000]
    command = ["node", "-e", program, ROOT / "src" / "web" / "format.js", *map(str, times)]
    need(shutil.which("node"), "node")
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    assert shown == "59.40 s,1 min 0 s,2 min 0 s,60 min 0 s\n"


# ------------------------------------------------------------------------------------------- processes, threads, times ----


def is_nested(events):
    """Whether begins and ends match in each thread, in the order of their times."""
    for ids in {(event["pid"], event["tid"]) for event in events}:
        stack = []
        for event in sorted((e for e in events if (e["pid"], e["tid"]) == ids), key=lambda event: event["ts"]):
            if event["ph"] == "B":
                stack.append(event["name"])
            elif event["ph"] == "E" and (not stack or stack.pop() != event["name"]):
                return False
    return True


def test_processes_of_one_number_are_told_apart(tmp_path):
    """As containers have them."""
    runs = [one(function=function).write(tmp_path / f"{function}.strobe") for function in "fgh"]
    chrome, gecko = (json.loads(report(runs[0], format, None, *runs[1:])) for format in ("chrome", "gecko"))
    assert is_nested(chrome["traceEvents"])
    named = {(e["pid"], e["name"][0]) for e in chrome["traceEvents"] if e["ph"] == "B"}
    assert {name for _, name in named} == set("fgh") and len({pid for pid, _ in named}) == 3
    main = [(thread["pid"], thread["tid"]) for thread in gecko["threads"] if thread["isMainThread"]]
    assert main == [("4242", 4242), ("10004242", 10004242), ("20004242", 20004242)]


def test_threads_of_one_number_are_told_apart(tmp_path):
    """The system gives a number again when a thread has ended."""
    run = one()
    again = run.thread("again")
    run.records[-1]["native_id"] = 4243
    run.spend(again, [frame("g", "/x.py", 7, 6)], python=20 * MS)
    run.spend(2, [frame("h", "/x.py", 9, 8)], python=20 * MS)
    events = json.loads(report(run.write(tmp_path / "x.strobe"), "chrome"))["traceEvents"]
    names = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    assert names == {"MainThread": 4242, "another": 4243, "again": 10004243} and is_nested(events)


def test_an_exec_makes_no_second_main_thread(tmp_path):
    run = one()
    run.thread("MainThread")
    run.records[-1]["native_id"] = 4242
    threads = json.loads(report(run.write(tmp_path / "x.strobe"), "gecko"))["threads"]
    assert [thread["tid"] for thread in threads if thread["isMainThread"]] == [4242] and len(threads) == 3


def test_allocations_do_not_last(tmp_path):
    """Bytes are no times: the Firefox Profiler shows as much time as there was, and trace events are of times alone."""
    run = one()
    run.spend(1, [frame("f", "/x.py", 3, 1)], alloc_bytes=1 << 40)
    run.spend(1, [frame("g", "/x.py", 7, 6)], alloc_bytes=1 << 40)
    gecko = json.loads(report(run.write(tmp_path / "x.strobe"), "gecko"))
    times = gecko["threads"][0]["nativeAllocations"]["time"]
    assert times == sorted(times) and len(times) == 2 and 0 <= times[1] < gecko["meta"]["profilingEndTime"] == 40
    brief = captures.Run(["python3", "x.py"])
    brief.spend(brief.thread("MainThread"), [frame("f", "/x.py", 3, 1)], alloc_bytes=1 << 40)
    events = json.loads(report(brief.write(tmp_path / "brief.strobe"), "chrome"))["traceEvents"]
    assert {event["ph"] for event in events} == {"M"}


def test_pstats_has_the_time_without_frames(tmp_path):
    run = one()
    run.spend(1, [], kernel=20 * MS)
    capture = run.write(tmp_path / "x.strobe")
    stats = pstats.Stats(str(report(capture, "pstats", tmp_path / "x.pstats"))).stats
    samples = {function[2]: (times[0], times[2], times[3]) for function, times in stats.items()}
    counts = Counter("<no frames>" if not record["stack"] else "f" for record in run.records if record["record"] == "sample")
    seconds = {"f": pytest.approx(0.04), "<no frames>": pytest.approx(0.02)}
    assert samples == {name: (counts[name], seconds[name], seconds[name]) for name in seconds}


def test_trace_events_last_no_longer_than_what_was_seen(tmp_path):
    """A thread that waits a little after each little run: what is left out is no part of its calls."""
    run = captures.Run(["python3", "x.py"])
    run.records[0] |= {"mode": 0, "origin": 0}
    thread, now, ran = run.thread("MainThread"), run.now, 0
    for look in range(200):
        weight = (900 if look % 2 else 300) * 1000
        now += weight
        ran += weight if look % 2 else 0
        run.records.append(
            {
                "record": "sample", "thread": thread, "stack": [frame("f", "/x.py", 3, 1)], "time_ns": now,
                "weight_ns": weight, "run": 1 if look % 2 else 2, "gil": 0, "collecting": False,
            }  # fmt: skip
        )
    events = json.loads(report(run.write(tmp_path / "x.strobe"), "chrome"))["traceEvents"]
    lasted = sum(event["ts"] * {"B": -1, "E": 1}.get(event["ph"], 0) for event in events)
    assert lasted * 1000 == pytest.approx(ran, rel=0.001)


def test_native_functions_of_a_trace_have_no_line(tmp_path):
    run = one().spend(1, [frame("f", "/x.py", 3, 1)], "dgemm", captures.BLAS, native=20 * MS)
    events = json.loads(report(run.write(tmp_path / "x.strobe"), "chrome"))["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "B"} == {"f (/x.py:1)", f"dgemm ({captures.BLAS})"}


@pytest.fixture
def idle(tmp_path):
    """An idle process that was attached to: its waiting is left out, and nothing is left."""
    run = captures.Run(["python3", "x.py"])
    run.records[0] |= {"mode": 0, "origin": 0}
    run.records.append(
        {
            "record": "sample", "thread": run.thread("MainThread"), "stack": [frame("f", "/x.py", 3, 1)], "time_ns": run.now + MS,
            "weight_ns": MS, "run": 2, "gil": 0, "collecting": False,
        }  # fmt: skip
    )
    return run.write(tmp_path / "x.strobe")


def test_the_firefox_profiler_opens_what_only_waited(idle, tmp_path):
    with FirefoxProfiler(report(idle, "gecko", tmp_path / "x.json")) as profiler:
        assert profiler.ask("profile", "info")["threadCount"] == 1


def test_speedscope_opens_it_too(idle, tmp_path):
    (result,) = node("speedscope.mjs", report(idle, "speedscope", tmp_path / "x.speedscope.json"))
    assert result["errors"] == [] and [profile["endValue"] for profile in result["imported"]["profiles"]] == [0]


def test_pprof_opens_it_too(idle, tmp_path):
    path = report(idle, "pprof", tmp_path / "x.pb.gz")
    command = [need(find_go(), "go"), "tool", "pprof", "-raw", path]
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert finished.returncode == 0 and "samples/count" in finished.stdout, finished.stderr
