"""The HTML report of a run, in a browser: all measures side by side, and each as the weight of everything."""

import pytest

import made_captures as captures
from made_captures import BLAS, MS, PARTS, report
from reports import node

# As the page calls them.
NAMES = {"python": "cpu_python", "native": "cpu_native", "kernel": "cpu_kernel"}


def page_name(measure):
    return NAMES.get(measure, measure)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run = captures.family(folder)
    run.capture = run.write(folder / "crunch.strobe")
    return run


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    path = report(run.capture, "html", folder / "run.html")
    (seen,) = node("run-page.mjs", path, folder)
    return seen


def charged(_, stack):
    """The line that a stack is charged to: (file, line)."""
    python = [f for f in stack if f["kind"] == 0]
    user = [f for f in python if not f["file"].startswith("/usr/lib")]
    place = (user or python or stack)[-1]
    return place["file"], place["position"][0] or -1


def by_page_name(amounts):
    return {page_name(name): amount for name, amount in amounts.items() if amount}


def test_nothing_goes_wrong(page):
    assert page["errors"] == []


def test_it_begins_with_the_sums(page, run):
    total = run.total()
    words = " ".join(page["summary"])
    assert f"CPU {total['cpu'] / 1e9:.3f} s" in words
    for part in PARTS:
        assert f"{part} {100 * total[part] / total['cpu']:.3g}" in words
    assert f"waited {total['wait'] / 1e9:.3f} s" in words and "peak 801 MiB" in words


def test_lines_have_all_their_measures(page, run):
    found = {}
    for row in page["lines"]["sums"]:
        amounts = {name: amount for name, amount in row["self"].items() if amount}
        if amounts:
            found[row["file"], row["line"]] = amounts
    assert found == {place: by_page_name(amounts) for place, amounts in run.sums(charged).items()}


def test_native_threads_stand_for_themselves(page):
    (row,) = [row for row in page["lines"]["sums"] if row["file"] == BLAS]
    assert row["self"]["cpu"] == row["total"] == 380 * MS


def test_a_lines_cells_say_what_it_cost(page):
    shown = page["lines"]["shown"]
    (row,) = [row for row in shown["rows"] if "zlib.compress" in row[-1]]
    cells = dict(zip(shown["heads"], row))
    assert cells["CPU"] == "952.0 ms" and cells["share"] == "26.9 %" and cells["native"] == "26.9 %"
    assert cells["line"] == "33" and "deflate_slow (libz.so.1.2.13) 19.5 %" in cells["source"]


def test_columns_can_be_chosen(page):
    assert "copied" not in page["lines"]["shown"]["heads"]
    assert "copied" in page["lines"]["withCopied"]


def test_lines_of_all_files_sort_by_each_column(page, run):
    by_column = page["lines"]["sorted"]
    assert {"self", "total", "cpu_python", "cpu_native", "cpu_kernel"} <= set(by_column)
    for column, result in by_column.items():
        assert result["values"] == sorted(result["values"], reverse=True), column
        assert len(result["values"]) > 15


def test_functions_open_their_source(page):
    assert page["functions"]["first"] == "dgemm_kernel_HASWELL"
    assert page["functions"]["opened"] == {"shown": "lines", "target": 18}
    assert page["functions"]["keyboard"] == {"current": 1, "shown": "lines"}


def test_threads_have_their_measures(page, run):
    table = page["threads"]["table"]
    rows = {row[-1]: dict(zip(table["heads"], row)) for row in table["rows"]}
    assert list(rows) == [
        "4242  python3 crunch.py --blocks 12", "[4242] MainThread (4242)", "[4242] blas-1 (4245)",
        "[4242] store-1 (4243)", "4243  python3 worker.py --n 3", "[4243] MainThread (4244)",
    ]  # fmt: skip
    assert rows["[4242] store-1 (4243)"]["wait"] == "2.520 s"
    assert rows["[4242] blas-1 (4245)"]["native"] == rows["[4242] blas-1 (4245)"]["share"] == "10.7 %"
    assert page["threads"]["alone"] == run.sums(lambda thread, _: thread)[2]["cpu"]


def test_the_flame_graph_can_weigh_by_each_measure(page, run):
    assert {name: sum for name, sum in page["flame"]["roots"].items() if sum} == by_page_name(run.total())
    assert page["flame"]["chosen"] == "cpu_native"


def test_a_box_tells_all_its_measures(page):
    rows = {row[0]: row[1:] for row in page["flame"]["tooltip"]}
    assert {"CPU time", "CPU time: native", "waiting", "allocated"} <= set(rows)
    assert rows["CPU time"][0] == "2.623 s"
