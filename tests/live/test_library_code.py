"""What is the user's code and what is a library's, in the ways in which programs are installed; and whose native time is."""

import re
import stat
import subprocess
import sys
import time
import zipapp
from pathlib import Path

import harness
import pytest
from harness import STROBE, strobe
from looks import Looks

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import capture_reader  # noqa: E402

BURN = """
import time
def burn(seconds=0.1):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(300))
"""
USER = """
import installed, edited
def own():
    installed.burn()
def through():
    edited.burn()
def plain(text="[1, 2, 3]" * 1):
    import json, time
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        json.loads(text)
own()
through()
plain()
"""
# As pip makes them.
LAUNCHER = """#!{python}
# -*- coding: utf-8 -*-
import re
import sys
from installed import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
PACKAGE = BURN + """
def main():
    burn()
"""


class Installation:
    """A virtual environment with a package installed, one installed to be edited, and a program of the user's in it."""

    def __init__(self, python, folder):
        self.prefix = folder / "app"
        subprocess.run([python.path, "-m", "venv", "--without-pip", self.prefix], check=True, timeout=60)
        self.python = self.prefix / "bin" / "python"
        (site,) = self.prefix.glob("lib/python3.*/site-packages")
        self.package = site / "installed"
        self.package.mkdir()
        (self.package / "__init__.py").write_text(PACKAGE)
        (self.package / "__main__.py").write_text("from installed import main\nmain()\n")
        self.edited = folder / "project" / "src" / "edited.py"
        self.edited.parent.mkdir(parents=True)
        self.edited.write_text(BURN)
        (site / "edited.pth").write_text(f"{self.edited.parent}\n")
        # In the prefix, as where /opt/app/bin/python runs /opt/app/program.py.
        self.program = self.prefix / "program.py"
        self.program.write_text(USER)
        self.launcher = self.prefix / "bin" / "tool"
        self.launcher.write_text(LAUNCHER.format(python=self.python))
        self.launcher.chmod(self.launcher.stat().st_mode | stat.S_IXUSR)


class Ran:
    def __init__(self, folder, way, *command):
        self.capture = folder / "capture.strobe"
        options = ["--cpu-only"] if not way else way
        result = strobe("run", *options, "--capture", self.capture, "--", *command, cwd=folder)
        assert result.returncode == 0, result
        self.report = strobe("report", "-f", "json", self.capture).json()

    def cpu(self):
        """CPU seconds by file and function."""
        spent = {}
        for file in self.report["files"]:
            for line in file["lines"]:
                key = file["path"], line["function"]
                spent[key] = spent.get(key, 0) + line["self_cpu_s"]
        return spent

    def edge_s(self):
        """From outside a thread's clock decides when its samples are 10 ms off, and what comes after the last look is in none:
        that is as long as strobe was kept from looking, at the most."""
        if self.report["clock"] == "wall":
            return 0.01 + self.report["samples"]["missed"] / self.report["rate_hz"]
        return Looks(self.capture).bound(0.01)

    def assert_charged(self, *places):
        """These, for a tenth of a second each or more, and no others to speak of: of each as much may be charged to what comes
        before or after it as lies between two looks."""
        spent, edge_s = self.cpu(), self.edge_s()
        assert all(spent.get(place, 0) > 0.08 - edge_s for place in places), (spent, edge_s)
        assert all(seconds < 0.02 + edge_s for place, seconds in spent.items() if place not in places), (spent, edge_s)

    def processes(self):
        return [r for r in capture_reader.Capture(self.capture.read_bytes()).records() if r["record"] == "process"]


def assert_charged(installation, folder, way):
    ran = Ran(folder, way, installation.python, installation.program)
    program, edited = str(installation.program), str(installation.edited)
    ran.assert_charged((program, "own"), (edited, "burn"), (program, "plain"))


def test_a_program_in_a_prefix_of_its_own(python, tmp_path):
    assert_charged(Installation(python, tmp_path), tmp_path, [])


def test_what_is_installed(any_python, tmp_path):
    """Seen from outside; and run itself: where no code is the user's, lines stand for themselves, and not for what
    started them."""
    installation = Installation(any_python, tmp_path)
    assert_charged(installation, tmp_path, ["--no-agent"])
    for command in ([installation.python, "-m", "installed"], [installation.launcher]):
        Ran(tmp_path, [], *command).assert_charged((str(installation.package / "__init__.py"), "burn"))


def test_an_archive(any_python, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "__main__.py").write_text(BURN + "burn()\n")
    archive = tmp_path / "app.pyz"
    zipapp.create_archive(source, archive)
    Ran(tmp_path, [], any_python.path, archive).assert_charged((f"{archive}/__main__.py", "burn"))


PLACE = """
import os, sys
print(os.path.dirname(os.__file__), flush=True)
sys.stdin.read()
"""


def libraries_of(capture):
    records = capture_reader.Capture(capture.read_bytes()).records()
    return [record["libraries"] for record in records if record["record"] == "process"][-1]


def test_the_standard_library_is_where_the_interpreter_has_it(python, tmp_path):
    """As it says itself; and nothing else, above all no prefix."""
    script, capture = tmp_path / "program.py", tmp_path / "capture.strobe"
    script.write_text(PLACE)
    with subprocess.Popen([python.path, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        told = running.stdout.readline().strip()
        result = strobe("attach", "-d", "0.1", "--capture", capture, running.pid, cwd=tmp_path)
        running.stdin.close()
    assert result.returncode == 0 and libraries_of(capture) == [told]


def test_the_library_of_a_program_that_is_run(any_python, tmp_path):
    script, capture = tmp_path / "program.py", tmp_path / "capture.strobe"
    script.write_text(PLACE)
    command = [STROBE, "run", "--cpu-only", "--quiet", "--capture", capture, "--", any_python.path, script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        told = running.stdout.readline().strip()
        # A chunk of the capture is written each second.
        deadline_s = time.monotonic() + 60
        while told.encode() not in contents(capture):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        running.stdin.close()
        assert running.wait(timeout=60) == 0
    assert libraries_of(capture) == [told]


def contents(capture):
    """All records of a capture that is being written."""
    show = harness.STROBE.resolve().parent / "tests" / "tools" / "show_capture"
    return subprocess.run([show, capture], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


MADE = """
import dataclasses, time
@dataclasses.dataclass
class Point:
    x: int
    y: int
    z: int = 0
def make():
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        for i in range(100): Point(i, i, i)
make()
"""


def test_methods_that_a_library_wrote(any_python, tmp_path):
    """A dataclass's __init__ is nobody's line; code in a string is its author's."""
    script = tmp_path / "made.py"
    script.write_text(MADE)
    Ran(tmp_path, [], any_python.path, script).assert_charged((str(script), "make"))
    Ran(tmp_path, [], any_python.path, "-c", BURN + "burn()").assert_charged(("<string>", "burn"))


def test_code_in_a_string_that_starts_a_child_is_nobodys(any_python, tmp_path):
    """multiprocessing's is, in workers that are spawned; what the user wrote is charged as in any process."""
    script = tmp_path / "spawning.py"
    script.write_text(BURN + f"import sys; sys.path.append({str(tmp_path / 'site-packages')!r})" + """
import execnet_like, multiprocessing
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=burn, args=(0.2,))
    worker.start()
    worker.join()
    execnet_like.start()
    burn()
""")
    # As pytest-xdist's workers: a string that runs what it is sent.
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "execnet_like.py").write_text(BURN + """
import subprocess, sys
def start():
    code = "import sys; exec(eval(sys.stdin.readline()))"
    sent = repr("import sys\\nsys.path.insert(0, %r)\\nimport execnet_like\\nexecnet_like.burn()" % sys.path[-1])
    subprocess.run([sys.executable, "-u", "-c", code], input=sent, text=True, check=True)
""")
    # A -c that is not the interpreter's makes no string of a program.
    ran = Ran(tmp_path, ["--cpu-only"], any_python.path, script, "-c", "2")
    files = {file["path"]: sum(line["self_cpu_s"] for line in file["lines"]) for file in ran.report["files"]}
    edge_s = ran.edge_s()
    assert files[str(script)] >= 0.28 - 2 * edge_s
    assert files[str(library / "execnet_like.py")] >= 0.09 - edge_s
    # What such a line itself takes to import.
    assert files.get("<string>", 0) < 0.04 + edge_s, files


def test_the_end_of_the_interpreter_is_told_as_such(any_python, tmp_path):
    """What it takes to free everything is on nobody's line, and the table says so."""
    code = "class Kept: pass\nkept = [Kept() for i in range(400000)]"
    shown = strobe("run", "--no-capture", "--cpu-only", "-o", "-", "--", any_python.path, "-c", code, cwd=tmp_path)
    assert shown.returncode == 0, shown
    assert re.search(r"^ +[\d.]+ ms .* \(outside of any Python function\)$", shown.stdout, re.MULTILINE), shown.stdout


# As jemalloc, which polars has: address space that is open and not reserved, mapped by an extension.
MAPPED = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
mapped = libc.mmap(None, 200 << 20, 3, 0x22 | 0x4000, -1, 0)
ctypes.memset(mapped, 1, 200 << 20)
import time
time.sleep(0.3)
"""


def test_memory_of_an_extension_is_in_the_peak(any_python, tmp_path):
    """No line has it; who reads the table is to know that there is more."""
    shown = strobe("run", "--no-capture", "-o", "-", "--", any_python.path, "-c", MAPPED, cwd=tmp_path)
    assert shown.returncode == 0, shown
    told = re.search(r" at the peak by line \(of ([\d.]+) MiB in all\)", shown.stdout)
    assert told and 200 <= float(told[1]) <= 240, shown.stdout


MIXED = BURN + """
import os, zlib
zero = os.open("/dev/zero", os.O_RDONLY)
end = time.thread_time() + 0.2
while time.thread_time() < end:
    zlib.crc32(os.read(zero, 1 << 16))
"""
NATIVE_FRAME, PARTS, NATIVE_PART = 1, ("3", "4", "5"), "4"


def test_a_native_function_has_native_time_alone(python, tmp_path):
    """What a look at it stands for besides, of Python and of the kernel, is the line's; and it is one look all the same."""
    script = tmp_path / "mixed.py"
    script.write_text(MIXED)
    ran = Ran(tmp_path, [], python.path, script)
    looks, others, native_ns = set(), [], 0
    for record in capture_reader.Capture(ran.capture.read_bytes()).records():
        is_native = bool(record.get("stack")) and record["stack"][-1]["kind"] == NATIVE_FRAME
        if record["record"] == "event" and is_native:
            others += [part for part in PARTS if part != NATIVE_PART and record["values"].get(part)]
        elif record["record"] == "sample":
            looks.add((record["thread"], record["time_ns"]))
            native_ns += is_native * record["weight_ns"]
    assert native_ns > 0.02e9 and not others
    lines = [row for file in ran.report["files"] for row in file["lines"]]
    assert sum(row.get("samples", 0) for row in [*lines, ran.report.get("left_out", {})]) == len(looks)
    # Each amount is rounded to a tick of the capture.
    told_s = sum(row["self_cpu_s"] for row in ran.report["native_functions"])
    assert told_s == pytest.approx(native_ns / 1e9, abs=20e-6 * len(looks))


SORTING = """
import time
numbers = list(range(50000, 0, -1)) * 2
end = time.thread_time() + 0.15
while time.thread_time() < end:
    sorted(numbers)
"""
# Since then it is known how far away the evaluation loop is.
FIRST_WITH_ENTRY_FRAMES = (3, 11)


def test_a_function_with_a_large_frame_has_its_name(python, tmp_path):
    """list.sort keeps 5 KiB on the C stack; that it was called as `sorted` stands above them."""
    script = tmp_path / "sorting.py"
    script.write_text(SORTING)
    functions = {row["function"]: row["self_cpu_s"] for row in Ran(tmp_path, [], python.path, script).report["native_functions"]}
    if python.at_least(*FIRST_WITH_ENTRY_FRAMES):
        assert max(functions, key=functions.get) == "sorted"
    else:
        assert functions
