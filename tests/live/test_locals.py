"""strobe's local variables against each frame's own f_locals."""

import pytest
from harness import Target, assert_same_frames, dump, in_utf8

WHOLE = 1_000_000  # --locals-chars: nothing is cut


def by_name(frame):
    """{name: local} of a frame of a dump; each name is there once."""
    found = {local["name"]: local for local in frame["locals"]}
    assert len(found) == len(frame["locals"]), frame
    return found


def assert_same_locals(told, seen):
    """`seen`, a frame of a dump, has the variables that the frame itself told."""
    found = by_name(seen)
    where = (seen["function"], seen["line"])
    expected = {in_utf8(name): local for name, local in told["locals"].items()}
    assert set(found) == set(expected), where
    for name, local in expected.items():
        shown = found[name]
        assert (shown["type"], shown["argument"]) == (local["type"], local["argument"]), (where, name)
        if local["value"] is not None:
            assert shown["value"] == in_utf8(local["value"]), (where, name)
    assert "locals_error" not in seen


def test_locals_of_every_kind_of_frame(python):
    with Target(python, "locals.py") as target:
        told = target.said["threads"][0]["frames"]
        seen = dump(target, "--locals", f"--locals-chars={WHOLE}")["threads"][0]["frames"]
    assert len(told) > 40
    assert_same_frames(python, told, seen)
    for told_frame, seen_frame in zip(told, seen):
        assert_same_locals(told_frame, seen_frame)


@pytest.mark.parametrize("limit", [1, 2, 20, 128])
def test_a_long_value_is_cut(python, limit):
    """At the number of characters given, `…` being one of them; what is shorter stays whole."""
    with Target(python, "locals.py") as target:
        told = target.said["threads"][0]["frames"]
        seen = dump(target, "--locals", f"--locals-chars={limit}")["threads"][0]["frames"]
    cut = 0
    for told_frame, seen_frame in zip(told, seen):
        shown = by_name(seen_frame)
        for name, local in told_frame["locals"].items():
            value = shown[in_utf8(name)]["value"]
            if local["value"] is None:
                assert len(value) <= limit, value
            elif len(local["value"]) <= limit:
                assert value == in_utf8(local["value"])
            else:
                cut += 1
                assert value.endswith("…") and len(value) <= limit
                assert in_utf8(local["value"]).startswith(value[:-1])
    assert cut > 0


def test_values_are_cut_at_128_characters_by_default(python):
    def frames(*options):
        return [thread["frames"] for thread in dump(target, "--locals", *options)["threads"]]

    with Target(python, "locals.py") as target:
        assert frames() == frames("--locals-chars=128")
        assert frames() != frames("--locals-chars=127")
