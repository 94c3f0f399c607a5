"""Values as text: what strobe reads in a process's memory is what repr() says in that process."""

import subprocess

import numpy_packages
import pytest
from harness import STROBE, Target, in_utf8

PRINTER = STROBE.parent / "tests" / "tools" / "print_objects"
SHOWN_DIFFERENCES = 20
UNLIMITED = 1_000_000


def print_objects(target, max_characters, cases):
    """[(type name, text)] as strobe has them."""
    finished = subprocess.run(
        [str(PRINTER), str(target.pid), str(target.said["runtime"]), str(max_characters)],
        input="\n".join(str(case["address"]) for case in cases).encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    parts = finished.stdout.decode().split("\0")[:-1]
    return list(zip(parts[::2], parts[1::2]))


def assert_same(seen, cases, expected):
    assert len(seen) == len(cases)
    differences = [
        f"{case['group']}: {text[:200]!r} instead of {right[:200]!r}"
        for (_, text), case, right in zip(seen, cases, expected)
        if text != right
    ]
    listed = "\n".join(differences[:SHOWN_DIFFERENCES])
    assert not differences, f"{len(differences)} of {len(cases)} differ:\n{listed}"


def assert_reads_values_of(target):
    cases = target.said["cases"]
    seen = print_objects(target, UNLIMITED, cases)
    assert [name for name, _ in seen] == [case["type"] for case in cases]
    assert_same(seen, cases, [in_utf8(case["text"]) for case in cases])


def test_values(python):
    with Target(python, "objects.py") as target:
        assert_reads_values_of(target)


def test_numpy_values(python):
    folder = numpy_packages.folder(python)
    if folder is None:
        pytest.skip("NumPy is tried with " + ", ".join(numpy_packages.MINORS))
    with Target(python, "objects_numpy.py", extra_env={"PYTHONPATH": str(folder)}) as target:
        assert "missing" not in target.said
        assert_reads_values_of(target)


def test_cut(python):
    """Whatever the limit, the text is the beginning of the whole text, with an ellipsis at its end."""
    with Target(python, "objects.py") as target:
        cases = target.said["cases"][::7]
        whole = [text for _, text in print_objects(target, UNLIMITED, cases)]
        for limit in (0, 1, 2, 17, 100):
            right = [text if len(text) <= limit else text[: limit - 1] + "…" if limit else "" for text in whole]
            assert_same(print_objects(target, limit, cases), cases, right)
