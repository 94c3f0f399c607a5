"""The table: its figures are the samples' sums, and it fits the terminal."""

import re
import unicodedata
from collections import Counter

import pytest

import descriptions
from reports import make

NS_OF = {"s": 1e9, "ms": 1e6, "us": 1e3}


def table(description, path, *options, **environment):
    return make(description, "table", path, *options, env=environment).read_text(encoding="utf-8")


def columns(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def test_lines_have_their_sums(hostile, truth, app, tmp_path):
    expected = Counter()
    for path, weight in truth.paths():
        user = [f for f in (truth.description["frames"][i] for i in path) if f["file"] == app]
        if user and (truth.description["frames"][path[-1]]["file"] in (app, descriptions.LIBRARY, "")):
            expected[user[-1]["line"]] += weight
    section = table(hostile, tmp_path / "table").split("\n\n")[1]
    head = re.match(r"(.*?)\s+([\d.]+)%\s+([\d.]+) s\n", section)
    whole = sum(expected.values())
    assert head[1] == app and float(head[3]) == pytest.approx(whole / 1e9, rel=0.01)
    assert float(head[2]) == pytest.approx(100 * whole / truth.total, abs=0.1)
    found = {}
    for row in section.split("\n")[2:]:
        cells = re.match(r"\s*([\d.]+) (s|ms|us)\s.*?%.*?%.* (\d+) (?= *\S)", row)
        if cells and cells[3] not in found:
            found[int(cells[3])] = float(cells[1]) * NS_OF[cells[2]]
    assert found == {line: pytest.approx(expected[line], rel=0.01) for line in found} and len(found) >= 3


def test_it_says_how_honest_it_is(hostile, tmp_path):
    assert "samples: 1,800 taken, 7 missed, 2 inconsistent, 1 failed\n" in table(hostile, tmp_path / "table")


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_it_fits_the_terminal(hostile, tmp_path, width):
    least = 60  # below, figures go before text
    for line in table(hostile, tmp_path / "table", COLUMNS=str(width)).split("\n"):
        assert columns(line) <= max(width, least), line


def test_colour_only_when_asked_for(hostile, tmp_path):
    assert "\x1b" not in table(hostile, tmp_path / "plain")
    coloured = table(hostile, tmp_path / "coloured", COLOUR="1")
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == table(hostile, tmp_path / "plain")


def test_all_shows_library_files(hostile, tmp_path):
    assert descriptions.LIBRARY not in table(hostile, tmp_path / "user")
    assert descriptions.LIBRARY in table(hostile, tmp_path / "all", "--all")


def test_what_is_left_out_says_why(hostile, tmp_path):
    text = table(hostile, tmp_path / "table", "--only", "*/nothing-there.py")
    assert "nothing is left to show" in text and "nothing was measured" not in text
    assert "left out: by --only and --exclude" in text


def test_threads_are_named(hostile, small, tmp_path):
    text = table(hostile, tmp_path / "table")
    for thread in small["threads"]:
        assert f"{thread['name']} ({thread['native_id']})" in text


def test_columns_are_of_what_was_taken(hostile, tmp_path):
    assert "alloc" not in table(hostile, tmp_path / "time")
    measured = {**hostile, "values": [[0, 1, "alloc_bytes", 5 << 20]]}
    text = table(measured, tmp_path / "memory")
    assert "alloc" in text and "5.0 MiB" in text
