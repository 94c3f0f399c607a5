"""One small profile in every format, each made once."""

import pytest

import descriptions
from reports import make


@pytest.fixture(scope="session")
def app(tmp_path_factory):
    path = tmp_path_factory.mktemp("app") / "app.py"
    path.write_text(descriptions.SOURCE)
    return str(path)


@pytest.fixture(scope="session")
def hostile(app):
    return descriptions.small(app)


@pytest.fixture(scope="session")
def small(hostile):
    """The same profile as it is to be shown."""
    return descriptions.shown(hostile)


@pytest.fixture(scope="session")
def truth(small):
    return descriptions.Truth(small)


@pytest.fixture(scope="session")
def report(hostile, tmp_path_factory):
    """report(format): the small profile in that format, made once."""
    folder = tmp_path_factory.mktemp("reports")
    endings = {"speedscope": "speedscope.json", "gecko": "gecko.json", "chrome": "trace.json", "pprof": "pb.gz"}

    def made(format):
        path = folder / f"small.{endings.get(format, format)}"
        return path if path.exists() else make(hostile, format, path)

    return made
