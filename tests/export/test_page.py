"""The HTML report in a browser: what it shows must be what the samples add up to, and it must not stall."""

import re
from collections import Counter

import pytest

import descriptions
from conftest import make, name_of, node


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    """What consumers/page.mjs saw and did with the small report."""
    folder = tmp_path_factory.mktemp("page")
    (seen,) = node("page.mjs", report("html"), folder)
    return seen


def test_it_is_one_file_that_asks_for_nothing(page, report):
    assert page["errors"] == []
    text = report("html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)


def test_hostile_text_stays_text(page, report, small):
    """Names that look like markup are shown as they are, and the data's element ends where it should."""
    assert page["dialogs"] == 0
    assert page["command"] == " ".join(small["processes"][0]["command"])
    text = report("html").read_text(encoding="utf-8")
    assert text.lower().count("</script") == 2


def test_functions_have_their_sums(page, truth):
    found = {row["name"]: (row["self"], row["total"]) for row in page["functions"]}
    self_times, totals = truth.self_by(name_of), truth.total_by(name_of)
    assert found == {name: (self_times[name], totals[name]) for name in totals}


def test_lines_have_their_sums(page, small, truth, app):
    expected, totals = Counter(), Counter()
    for path, weight in truth.paths():
        user = [f for f in (small["frames"][i] for i in path) if f["file"] and f["file"] != descriptions.LIBRARY]
        expected[user[-1]["file"], user[-1]["line"]] += weight
        for place in {(f["file"], f["line"]) for f in user}:
            totals[place] += weight
    found = {(row["file"], row["line"]): (row["self"], row["total"]) for row in page["lines"]}
    assert found == {place: (expected[place], totals[place]) for place in totals}


def test_lines_show_their_source(page):
    source = descriptions.SOURCE.splitlines()
    assert [row["text"] for row in page["source"]] == source


def test_threads_can_be_chosen(page, truth):
    assert page["threads"] == [truth.by_thread[i] for i in range(3)]


def test_inverted_begins_with_what_ran(page, truth):
    self_times = {name: weight for name, weight in truth.self_by(name_of).items()}
    assert dict(page["inverted"]) == self_times


def test_click_zooms_and_escape_goes_back(page):
    assert page["zoomed"]["key"] != -1 and page["zoomed"]["width"] == page["zoomed"]["all"]
    assert page["zoomed"]["back"] == -1


def test_search_says_how_much_it_found(page, truth, small):
    found = sum(weight for path, weight in truth.paths() if any(name_of(small["frames"][i]) == "leaf" for i in path))
    assert page["search"]["leaf"] == f"1 found · {100 * found / truth.total:.1f} %"
    assert page["search"]["alert(1)"].startswith("2 found")


def test_a_hundred_thousand_frames_do_not_stall_it(tmp_path):
    path = make(descriptions.large(100_000), "html", tmp_path / "large.html")
    (seen,) = node("page.mjs", path, tmp_path, "--large")
    assert seen["errors"] == []
    assert seen["functions"] == 33_334
    # Generous bounds, for a slow machine: what stalls takes minutes, what does not takes a tenth of these.
    for action, milliseconds in seen["milliseconds"].items():
        assert milliseconds < 6000, (action, seen["milliseconds"])
    # Only what is in sight is in the document.
    assert seen["elements"] < 2000
