"""The tests are worth what they ran on."""

import os

import interpreters
import pytest


def all_required():
    return os.environ.get("STROBE_REQUIRE_ALL") == "1" or os.environ.get("CI") == "true"


@pytest.mark.parametrize("version", interpreters.REQUIRED_VERSIONS)
def test_version_is_here(version):
    if version in {interpreter.minor for interpreter in interpreters.supported()}:
        return
    if all_required():
        pytest.fail(f"no CPython {version} found on PATH, under pyenv or in $STROBE_PYTHONS")
    pytest.skip(f"no CPython {version} on this machine")


def test_labels_are_unique():
    labels = interpreters.labels(interpreters.discover())
    assert len(set(labels)) == len(labels)
