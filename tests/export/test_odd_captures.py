"""Captures with what is rare in each format: the report is made, and says the same."""

import json
from xml.etree import ElementTree

import pytest

import made_captures as captures
from made_captures import MS, frame, report

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
