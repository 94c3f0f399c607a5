"""tools/check-includes: passes on this tree, and sees each kind of violation."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CHECK_INCLUDES = ROOT / "tools" / "check-includes"

TABLE = """# A house
| `decoy` | of another section | all |

## Rooms

| room | does | may include |
|---|---|---|
| `base` | all | nothing |
| `wire` | records | nothing |
| `process` | a process | `base` |
| `agent` | inside | `wire`, `process/layout.h` |
| `cli` | prints | all but `agent` |

## After
| `decoy` | of another section | all |
"""

FILES = {
    "base/text.h": "#include <stddef.h>\n",
    "wire/ring.h": "",
    "process/process.h": '#include "base/text.h"\n',
    "process/layout.h": "",
    "process/linux/maps.h": '#include "process/process.h"\n',
    "process/linux/maps.c": '#include "process/linux/maps.h"\n',
    "agent/hooks.c": '#include "wire/ring.h"\n#include "process/layout.h"\n',
    "agent/hooks.h": "",
    "cli/main.c": '#include "process/process.h"\n#include "wire/ring.h"\n',
}


@pytest.fixture
def check(tmp_path):
    """Checks a small house, changed by {path: text} and with another table if given; returns (status, complaints)."""

    def run(changes=None, table=TABLE):
        (tmp_path / "ARCHITECTURE.md").write_text(table)
        for path, text in {**FILES, **(changes or {})}.items():
            file = tmp_path / "src" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        finished = subprocess.run([CHECK_INCLUDES, tmp_path], stderr=subprocess.PIPE, text=True)
        return finished.returncode, finished.stderr

    return run


def test_this_tree():
    finished = subprocess.run([CHECK_INCLUDES], stderr=subprocess.PIPE, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")


def test_a_tidy_house(check):
    assert check() == (0, "")


@pytest.mark.parametrize(
    "path, text, complaint",
    [
        ("base/text.c", '#include "process/process.h"', "src/base/text.c:1: "),
        ("base/text.c", '\n  #  include "wire/ring.h"', "base may not include wire"),
        ("process/process.c", '#include "process.h"', "not room-qualified"),
        ("process/linux/x.c", '#include "maps.h"', "not room-qualified"),
        ("process/process.c", '#include "../base/text.h"', "not room-qualified"),
        ("process/process.c", '#include "base/missing.h"', "does not exist"),
        ("process/process.c", "#include <wire/ring.h>", "process may not include wire"),
        ("agent/hooks.c", '#include "process/process.h"', "agent may not include process"),
        ("cli/main.c", '#include "agent/hooks.h"', "cli may not include agent"),
        ("cli/main.c", '#include "process/linux/maps.h"', "only process itself"),
        ("cellar/rat.c", "", "lies in no room"),
        ("rat.c", "", "lies in no room"),
    ],
)
def test_violation(check, path, text, complaint):
    status, said = check({path: text})
    assert status == 1
    assert said.startswith("check-includes: ") and said.count("\n") == 1
    assert complaint in said


def test_a_table_that_names_no_room(check):
    status, said = check(table=TABLE.replace("| `process` | a process | `base` |", "| `process` | x | `bass` |"))
    assert status == 1
    assert "bass" in said


def test_a_document_without_a_table(check):
    assert check(table="nothing here")[0] == 1
