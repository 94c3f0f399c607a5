"""What is made of a capture of `strobe attach`: every format, the table, merging and comparing."""

import gzip
import json
import os
import pstats
import re
import resource
import subprocess
import time
import xml.etree.ElementTree

import harness
import pytest
from harness import assert_refuses, strobe
from test_attach import function_of, report
from test_attach_captures import whole  # noqa: F401 (a fixture)


def check_json(path):
    assert json.loads(path.read_text())["strobe"] == 1


def check_html(path):
    text = path.read_text()
    assert text.lower().startswith("<!doctype html>")
    assert "mix.py" in text


def check_collapsed(path):
    lines = path.read_text().splitlines()
    assert lines
    for line in lines:
        assert re.fullmatch(r"thread .+ \(\d+\)(;[^;]+)* \d+", line), line


def check_speedscope(path):
    told = json.loads(path.read_text())
    assert told["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    for profile in told["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(frame < len(told["shared"]["frames"]) for stack in profile["samples"] for frame in stack)


def check_pprof(path):
    assert b"mix.py" in gzip.decompress(path.read_bytes())


def check_gecko(path):
    told = json.loads(path.read_text())
    assert {thread["name"] for thread in told["threads"]} >= {"MainThread", "burner"} or told["threads"]


def check_chrome(path):
    told = json.loads(path.read_text())
    events = told["traceEvents"] if isinstance(told, dict) else told
    assert {event["ph"] for event in events} & {"X", "B"}


def check_pstats(path):
    stats = pstats.Stats(str(path))
    assert any(name == "measure" for _, _, name in stats.stats)


def check_svg(path):
    assert xml.etree.ElementTree.parse(path).getroot().tag.endswith("svg")


def check_table(path):
    assert "mix.py" in path.read_text()


CHECKS = {
    "table": check_table,
    "json": check_json,
    "html": check_html,
    "collapsed": check_collapsed,
    "speedscope": check_speedscope,
    "pprof": check_pprof,
    "gecko": check_gecko,
    "chrome": check_chrome,
    "pstats": check_pstats,
    "svg": check_svg,
}


@pytest.mark.parametrize("name", CHECKS)
def test_every_format(whole, tmp_path, name):  # noqa: F811
    path = tmp_path / "out"
    result = strobe("report", "-f", name, "-o", path, whole)
    assert result == harness.Result(harness.OK, "", "")
    CHECKS[name](path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"], "nothing is left beside the output"


@pytest.mark.parametrize(
    ("options", "key", "head"),
    [
        ([], "self_cpu_s", "cpu"),
        (["--idle"], "wall_s", "wall"),
        (["--measure", "wait"], "wait_s", "wait"),
        (["--measure", "wall"], "wall_s", "wall"),
    ],
)
def test_what_the_table_ranks_by(whole, options, key, head):  # noqa: F811
    """Threads that wait do not stand above what runs, unless that is asked for."""
    rows = strobe("report", *options, whole).stdout.splitlines()
    begin = next(i for i, row in enumerate(rows) if row.startswith(" ") and row.endswith("  function"))
    assert rows[begin].split()[0] == head
    functions = strobe("report", "-f", "json", whole).json()["functions"]
    first = max(functions, key=lambda function: function[key])
    assert re.search(rf"\b{first['qualname']}  mix.py:{first['line']}$", rows[begin + 1]), rows[begin : begin + 3]
    waited = sum(function["wait_s"] for function in functions)
    unit = r"([\d.]+) (ms|s)\b"
    amount, name = next(re.match("waited " + unit, row).groups() for row in rows if row.startswith("waited "))
    assert float(amount) * {"ms": 1e-3, "s": 1}[name] == pytest.approx(waited, rel=0.01)


def test_the_table_ranks_by_what_there_is(whole):  # noqa: F811
    result = strobe("report", "--measure", "peak", whole)
    assert result.returncode == harness.USAGE
    assert result.stderr.startswith("strobe: the capture does not have 'peak'; it has "), result.stderr


def test_the_format_follows_from_the_name_if_it_is_not_given(whole, tmp_path):  # noqa: F811
    for name, options, check in (
        ("out.json", [], check_json),
        ("out.txt", [], check_table),
        ("out.folded", [], check_collapsed),
        ("out.folded", ["-f", "table"], check_table),
    ):
        assert strobe("report", *options, "-o", tmp_path / name, whole).returncode == harness.OK
        check(tmp_path / name)


@pytest.mark.parametrize("options", [["report", "-f", "html"], ["diff", "-f", "json", "--all"]])
def test_a_reader_that_has_seen_enough(whole, options, tmp_path):  # noqa: F811
    """As `strobe … | head`: also where there is more than is held back until the end."""
    seen, written = os.pipe()
    os.close(seen)
    captures = [whole, whole] if options[0] == "diff" else [whole]
    done = subprocess.run(
        [harness.STROBE, *options, *captures], cwd=tmp_path, stdout=written, stderr=subprocess.PIPE, timeout=60
    )
    os.close(written)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_said(whole):  # noqa: F811
    result = strobe("report", "-f", "html", "-o", "/dev/full", whole)
    assert result.returncode == 1
    assert result.stderr == "strobe: cannot write /dev/full: No space left on device\n"


def test_an_output_is_whole_or_not_there(whole, tmp_path):  # noqa: F811
    path = tmp_path / "out.json"
    path.write_text("old")
    limit = (4096, 4096)
    result = strobe(
        "report", "-o", path, whole, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    )
    assert_refuses(result, harness.FAILED)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
    assert_refuses(strobe("report", "-o", tmp_path / "no" / "out.json", whole), harness.FAILED)


def test_merge_and_diff(whole, tmp_path):  # noqa: F811
    once, merged = report(whole), tmp_path / "merged.strobe"
    assert strobe("merge", whole, whole, "-o", merged) == harness.Result(harness.OK, "", "")
    twice = report(merged)
    assert len(twice["processes"]) == 2 * len(once["processes"])
    assert twice["samples"]["taken"] == 2 * once["samples"]["taken"]
    for name in ("measure", "one", "sleep"):
        assert function_of(twice, name)["total_wall_s"] == pytest.approx(2 * function_of(once, name)["total_wall_s"])
    # Sampled for twice the time: scaled to the same, it is the same.
    same = strobe("diff", "-f", "json", whole, merged).json()
    assert same["scale"] == pytest.approx(0.5, rel=0.01)
    assert same["after"]["sums"]["wall_s"] == pytest.approx(same["before"]["sums"]["wall_s"], rel=0.01)
    for row in same["lines"] + same["functions"]:
        assert row["after"]["wall_s"] == pytest.approx(row["before"]["wall_s"], rel=0.02, abs=1e-6)
    table = strobe("diff", whole, merged)
    assert table.returncode == harness.OK
    assert "in all" in table.stdout
