"""Captures with what is rare in each format: the report is made, and says the same."""

import json
from xml.etree import ElementTree

import pytest

import made_captures as captures
from made_captures import MS, frame, report
from test_run_exports import on_terminal

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


def test_parts_that_nobody_measured_are_not_nothing(tmp_path):
    """Of a process that was looked at from outside, in the capture of a run."""
    run = one()
    number = run.process(["python3", "y.py"])
    run.records[-1] |= {"mode": 0, "origin": 0}
    run.records.append(
        {
            "record": "sample", "thread": run.thread("outside", number), "stack": [frame("g", "/y.py", 3, 1)],
            "time_ns": run.now + MS, "weight_ns": MS, "run": 1, "gil": 0, "collecting": False,
        }  # fmt: skip
    )
    inside, outside = report(run.write(tmp_path / "x.strobe"), "table", None, "--threads").split("\n\n\n")
    assert "\nCPU 40.0 ms: █ python 100%" in inside and "\nCPU 1.0 ms\n" in outside
