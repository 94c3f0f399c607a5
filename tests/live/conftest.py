"""Fixtures of the live tests: the interpreters as parameters, and strobe's one."""

import os
import signal
import tempfile
from pathlib import Path

import harness
import interpreters
import pytest

# What runs the tests in the background (nohup, a shell without job control) ignores these, and strobe would, too: what is
# ignored is inherited.
for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def strobe_is_built():
    """One message instead of a failure for each test."""
    if not harness.STROBE.is_file():
        pytest.exit(f"{harness.STROBE} is not there: run make first, or set STROBE", returncode=1)


def pytest_report_header(config):
    lines = ["interpreters:"]
    found = interpreters.discover()
    for label, interpreter in zip(interpreters.labels(found), found):
        remark = "" if interpreter.version >= interpreters.FIRST_SUPPORTED else ", only to be refused"
        lines.append(f"  {label:14} {interpreter.describe()}{remark}")
    return lines


def pytest_generate_tests(metafunc):
    for name, found in (("python", interpreters.supported()), ("old_python", interpreters.unsupported())):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, found, ids=interpreters.labels(found))


@pytest.fixture
def any_python():
    """One interpreter, for what does not depend on the version."""
    return interpreters.newest()


@pytest.fixture
def public_folder():
    """A folder that every user can reach, wherever the checkout is."""
    with tempfile.TemporaryDirectory(prefix="strobe-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
