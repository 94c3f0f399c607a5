"""Reports of captures as `strobe run` makes them: CPU time in its parts, waiting, memory, native functions."""

import json
import os
import re
import subprocess
from collections import Counter

import pytest

import made_captures as captures
from made_captures import MS, PARTS, report
from reports import HERE, python_module

ROOT = HERE.parent.parent
NS = 1e9


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A made-up run and its capture."""
    folder = tmp_path_factory.mktemp("run")
    run = captures.crunch(folder)
    run.capture = run.write(folder / "crunch.strobe", missed=3)
    run.file = str(folder / "crunch.py")
    return run


@pytest.fixture(scope="module")
def document(run):
    return json.loads(report(run.capture, "json"))


def is_user(path):
    return path.endswith("crunch.py")


def seconds(amounts, name):
    return pytest.approx(amounts[name] / NS, abs=1e-9)


# --------------------------------------------------------------------------------------------------------- json ----


def test_json_fits_its_schema(document):
    jsonschema = python_module("jsonschema")
    jsonschema.validate(document, json.loads((ROOT / "docs" / "report.schema.json").read_text()))


def check_measures(found, amounts):
    """A row of the document against a sum of the truth."""
    assert found["cpu_s"] == {part: seconds(amounts, part) for part in PARTS}
    assert found["self_cpu_s"] == seconds(amounts, "cpu")
    assert found["wait_s"] == seconds(amounts, "wait")
    assert found["gil_wait_s"] == seconds(amounts, "gil_wait")
    for name in ("alloc_bytes", "alloc_count", "peak_bytes", "live_bytes", "python_bytes", "copy_bytes"):
        assert found[name] == amounts[name], name


def test_json_lines_have_their_sums(run, document):
    found = {(file["path"], line["line"]): line for file in document["files"] for line in file["lines"]}
    expected = run.self_by_line(is_user)
    assert {place for place, line in found.items() if line["self_cpu_s"] > 0} == {
        place for place, amounts in expected.items() if amounts["cpu"]
    }
    for place, amounts in expected.items():
        check_measures(found[place], amounts)


def test_json_totals_have_the_callees(run, document):
    (file,) = document["files"]
    main = next(line for line in file["lines"] if line["line"] == 52)
    expected = run.sums(lambda _, stack: stack[0]["function"])["<module>"]
    assert main["total_cpu_s"] == seconds(expected, "cpu")
    assert main["total_wait_s"] == seconds(expected, "wait")
    assert main["total_alloc_bytes"] == expected["alloc_bytes"]


def test_json_threads_and_processes_have_their_sums(run, document):
    for number, thread in enumerate(document["threads"], 1):
        amounts = run.sums(lambda thread, _: thread)[number]
        check_measures(thread["sampled"], amounts)
        assert thread["cpu_s"] == seconds(amounts, "cpu")
    check_measures(document["processes"][0]["sampled"], run.total())


def test_json_tells_native_functions_apart(run, document):
    found = {(row["library"], row["function"]): row["self_cpu_s"] for row in document["native_functions"]}
    assert found == {key: seconds(amounts, "native") for key, amounts in run.by_native().items()}
    (file,) = document["files"]
    compress = next(line for line in file["lines"] if line["line"] == 33)
    assert {row["function"]: row["self_cpu_s"] for row in compress["natives"]} == {
        "deflate_slow": pytest.approx(0.69), "longest_match": pytest.approx(0.26)
    }  # fmt: skip


def test_json_says_what_was_not_taken_by_silence(tmp_path):
    """Nothing of memory, and no kernel time in a program that never used any: the one is absent, the other is 0."""
    run = captures.Run(["python3", "x.py"])
    run.spend(run.thread("MainThread"), [captures.frame("f", "/x.py", 3, 1)], python=5 * MS)
    document = json.loads(report(run.write(tmp_path / "x.strobe"), "json"))
    (line,) = document["files"][0]["lines"]
    assert line["cpu_s"] == {"python": pytest.approx(0.005), "native": 0, "kernel": 0}
    absent = {"wait_s", "gil_wait_s", "alloc_bytes", "peak_bytes", "live_bytes", "copy_bytes", "gpu_s", "wall_s"}
    assert not absent & set(line)


# -------------------------------------------------------------------------------------------------------- table ----


def figures(row, head):
    """The cells of a row by the column that they end below."""
    cells = {}
    for title in re.finditer(r"gil wait|native function|\S+", head):
        cells[title[0]] = title.end()
    found = {}
    for cell in re.finditer(r"[<\d.]+(?: (?:s|ms|us|[KMG]iB)|%)|[<\d.]+(?= *\S)", row):
        for name, end in cells.items():
            if cell.end() == end:
                found[name] = cell[0]
    return found


def line_rows(text):
    """{line: its cells} of the first file."""
    section = text.split("\n\n")[1].split("\n")
    rows = {}
    for row in section[2:]:
        cells = figures(row, section[1])
        if "line" in cells:
            rows[int(cells["line"])] = cells
    return rows


AMOUNTS = {"s": NS, "ms": 1e6, "us": 1e3, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def amount(cell):
    if cell is None:
        return 0
    number, unit = cell.split()
    return float(number) * AMOUNTS[unit]


def test_table_lines_have_their_parts(run):
    rows = line_rows(report(run.capture, "table"))
    total = run.total()["cpu"]
    elapsed_s = json.loads(report(run.capture, "json"))["elapsed_s"]
    for (_, line), amounts in run.self_by_line(is_user).items():
        if line not in rows:
            assert amounts["cpu"] < 0.005 * total and amounts["wait"] < 0.02 * run.total()["wait"]
            continue
        cells = rows[line]
        assert amount(cells.get("cpu")) == pytest.approx(amounts["cpu"], rel=0.01)
        assert amount(cells.get("wait")) == pytest.approx(amounts["wait"], rel=0.01)
        assert amount(cells.get("alloc")) == pytest.approx(amounts["alloc_bytes"], rel=0.1)
        assert float(cells.get("MB/s", 0)) == pytest.approx(amounts["copy_bytes"] / 1e6 / elapsed_s, rel=0.01, abs=0.051)
        for part in PARTS:
            share = 100 * amounts[part] / total
            cell = cells.get(part, "0%")
            assert share < 0.5 if cell in ("0%", "<1%") else int(cell[:-1]) == pytest.approx(share, abs=0.51)


def test_table_shows_total_where_it_differs(run):
    rows = line_rows(report(run.capture, "table"))
    assert rows[52]["total"].startswith("99") or rows[52]["total"] == "100.0%"
    assert "total" not in rows[33]


def test_table_names_native_functions(run):
    text = report(run.capture, "table")
    assert "└ deflate_slow (libz.so.1.2.13) 26%, longest_match (libz.so.1.2.13) 10%" in text
    natives = next(table for table in text.split("\n\n") if table.split("\n")[0].endswith("native function"))
    assert "dgemm_kernel_HASWELL  libopenblasp-r0.3.21.so" in natives


def test_table_shows_who_waited(run):
    threads = next(table for table in report(run.capture, "table").split("\n\n") if table.split("\n")[0].endswith("thread"))
    head, *rows = threads.split("\n")
    assert [amount(figures(row, head).get("wait")) for row in rows[:2]] == [pytest.approx(104 * MS), pytest.approx(2520 * MS)]


def test_table_has_columns_for_what_was_taken_alone(tmp_path):
    text = report(captures.crunch(tmp_path, memory=False).write(tmp_path / "x.strobe"), "table")
    assert not re.search(r"alloc|peak|live|copied|MB/s|memory|gpu", text)


def on_terminal(capture, columns, *options, env=None):
    """`strobe report` with a terminal of so many columns as its output."""
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.Popen([captures.STROBE, "report", *options, capture], stdout=slave, env={**plain, **(env or {})})
    os.close(slave)
    shown = b""
    while True:
        try:
            shown += os.read(master, 1 << 16)
        except OSError:
            break
    os.close(master)
    assert process.wait(timeout=30) == 0
    return shown.decode().replace("\r\n", "\n")


def without_colours(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.parametrize("columns", [60, 72, 80, 100, 132, 200])
def test_table_fits_the_terminal(run, columns):
    text = without_colours(on_terminal(run.capture, columns))
    assert max(len(line) for line in text.split("\n") if not line.endswith("crunch.py")) <= columns
    assert run.file[-20:] in text and "packed = zlib" in text


def test_table_keeps_the_parts_on_80_columns(run):
    head = without_colours(on_terminal(run.capture, 80)).split("\n\n")[1].split("\n")[1]
    assert head.split() == ["share", "python", "native", "kernel", "wait", "line"]


def test_source_is_coloured_on_a_terminal_only(run):
    coloured = on_terminal(run.capture, 200)
    assert "\x1b[1;34mwhile " in coloured and '\x1b[32m"input.bin"\x1b[0m' in coloured
    assert "\x1b[2m# from the disk\x1b[0m" in coloured
    assert "\x1b" not in on_terminal(run.capture, 200, env={"NO_COLOR": "1"})
    assert "\x1b" not in report(run.capture, "table")


def test_lines_asks_for_so_many(run):
    assert len(line_rows(report(run.capture, "table", None, "--lines", "3"))) == 3
    assert len(line_rows(report(run.capture, "table", None, "--lines", "1000"))) > 13


def test_several_processes_are_told_apart(tmp_path):
    run = captures.Run(["python3", "pool.py"])
    child = run.process(["python3", "pool.py", "--worker"], parent_pid=4242)
    place = [captures.frame("f", "/pool.py", 3, 1)]
    run.spend(run.thread("MainThread"), place, python=40 * MS)
    run.spend(run.thread("MainThread", child), place, kernel=160 * MS)
    text = report(run.write(tmp_path / "pool.strobe"), "table")
    processes = text.split("\n\n")[-1].rstrip().split("\n")
    assert processes[0].endswith("process") and processes[1].endswith("4243  python3 pool.py --worker")
    assert figures(processes[1], processes[0])["kernel"] == "80%"
    assert "[4243] MainThread" in text


def test_native_threads_do_not_inflate_lines(tmp_path):
    """A library's own threads have no line: they stand for themselves."""
    run = captures.Run(["python3", "x.py"])
    run.spend(run.thread("MainThread"), [captures.frame("f", "/x.py", 3, 1)], python=40 * MS)
    run.spend(run.thread(""), [], "dgemm", captures.BLAS, native=160 * MS)
    document = json.loads(report(run.write(tmp_path / "x.strobe"), "json"))
    lines = {file["path"]: sum(line["self_cpu_s"] for line in file["lines"]) for file in document["files"]}
    assert lines == {"/x.py": pytest.approx(0.04), captures.BLAS: pytest.approx(0.16)}
    assert Counter(row["function"] for row in document["native_functions"]) == {"dgemm": 1}
