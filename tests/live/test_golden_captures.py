"""Captures of every format version, whole and broken, as they were read when they were recorded."""

import sys

import harness
import pytest

sys.path.append(str(harness.HERE.parent / "golden"))
import captures  # noqa: E402


@pytest.mark.parametrize("path", captures.recorded(), ids=lambda path: path.stem)
def test_a_capture_is_read_as_ever(path):
    assert captures.report(path) == path.with_suffix(".txt").read_text()
