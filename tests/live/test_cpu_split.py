"""What a line's CPU time was spent on, Python, C or the kernel, held against what the program finds out by itself."""

import json
import math
import os
import subprocess

import numpy_packages
import pytest
from harness import TARGETS, strobe
from looks import Looks

# How long each loop runs. More of it makes the bounds that chance needs narrower: they were held with 20 by hand.
SECONDS = float(os.environ.get("SPLIT_SECONDS") or 1)
# Long, because the machine may be busy: it is CPU time that counts.
TIMEOUT_S = 300
# So far from the truth, in points, may a share be.
FINE, BULK = 3.0, 2.0
# Chance: of so many standard deviations one is met in 16,000 trials.
DEVIATIONS = 4


def include_folders(python):
    question = "import sysconfig; print(sysconfig.get_path('include')); print(sysconfig.get_path('platinclude'))"
    answer = subprocess.run([python.path, "-c", question], stdout=subprocess.PIPE, text=True, check=True)
    folders = list(dict.fromkeys(answer.stdout.split()))
    # Debian's pyconfig.h includes <ARCHITECTURE/pythonX.Y/pyconfig.h>.
    return folders + [os.path.dirname(folder) for folder in folders]


@pytest.fixture(scope="module")
def extension(request, tmp_path_factory):
    """A function: the folder with empty_calls for an interpreter."""
    made = {}

    def make(python):
        if python.path not in made:
            folder = tmp_path_factory.mktemp("empty_calls")
            includes = ["-I" + folder for folder in include_folders(python)]
            if not any(os.path.exists(include[2:] + "/Python.h") for include in includes):
                pytest.skip("its headers are not here")
            command = ["cc", "-O2", "-shared", "-fPIC", *includes, "-o", folder / "empty_calls.so"]
            subprocess.run([*command, TARGETS / "empty_calls.c"], check=True)
            made[python.path] = folder
        return made[python.path]

    return make


class Ran:
    def __init__(self, result, report, capture):
        assert result.returncode == 0, result
        self.truth = json.loads(result.stdout)
        self.looks = Looks(capture)
        self.native_functions = report["native_functions"]
        self.functions = {}
        for row in report["functions"]:
            if row.get("function") and "cpu_s" in row:
                self.functions.setdefault(row["function"], []).append(row)

    def seconds(self, function, part):
        return sum(row["cpu_s"][part] for row in self.functions[function])

    def native_percent(self, function):
        """Of the time that was not the kernel's."""
        native = self.seconds(function, "native")
        return 100 * native / (native + self.seconds(function, "python"))

    def kernel_percent(self, function):
        kernel = self.seconds(function, "kernel")
        return 100 * kernel / (kernel + self.seconds(function, "native") + self.seconds(function, "python"))

    def edge_percent(self, function):
        """So much of it may be its neighbour's, where one follows the other."""
        seconds = sum(self.seconds(function, part) for part in ("python", "native", "kernel"))
        return 100 * self.looks.edge_s() / seconds


@pytest.fixture
def run(tmp_path):
    def run_it(python, *arguments, env=None):
        report, capture = tmp_path / "report.json", tmp_path / "c.strobe"
        command = ["run", "--capture", capture, "-o", report, "--", python.path, *arguments]
        result = strobe(*command, cwd=tmp_path, env=env, timeout=TIMEOUT_S)
        return Ran(result, json.loads(report.read_text()), capture)

    return run_it


def distance(percent, low, high):
    """From an interval; below it is negative. The interval is measured, and may seem to lie below nothing."""
    low, high = max(low, 0.0), max(high, 0.0)
    return min(0.0, percent - 100 * low) + max(0.0, percent - 100 * high)


def chance(percent, samples):
    share = min(max(percent / 100, 0.02), 0.98)
    return 100 * math.sqrt(share * (1 - share) / samples)


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_fine_mixes(python, run, extension):
    ran = run(python, TARGETS / "fine_mixes.py", extension(python), SECONDS)
    off, variance = {}, 0.0
    for case, truth in ran.truth.items():
        function, (low, high) = "case_" + case, truth["share"]
        # Compilers may have put its few instructions into the evaluation loop itself, where they are Python's.
        low = 0.0 if case == "len" else low
        percent = ran.native_percent(function)
        deviation = chance(percent, ran.looks.effective(function))
        if truth["looks"]:  # one of the estimates of the truth is a sample itself
            deviation = math.hypot(deviation, chance(percent, truth["looks"]))
        off[case] = round(distance(percent, low, high), 1)
        variance += deviation**2
        assert abs(off[case]) < FINE + DEVIATIONS * deviation, (case, percent, low, high)
    # All together: chance evens out, what is always counted wrongly does not.
    mean, deviation = sum(off.values()) / len(off), math.sqrt(variance) / len(off)
    print(off)
    assert abs(mean) < FINE / 2 + DEVIATIONS * deviation, off


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_operators_of_numpy(python, run, extension):
    folder = numpy_packages.folder(python)
    if folder is None:
        pytest.skip("no NumPy for it")
    env = dict(os.environ, PYTHONPATH=str(folder))
    ran = run(python, TARGETS / "fine_mixes.py", extension(python), SECONDS, "numpy_operators", env=env)
    low, high = ran.truth["numpy_operators"]["share"]
    percent, looks = ran.native_percent("case_numpy_operators"), ran.looks.effective("case_numpy_operators")
    assert abs(distance(percent, low, high)) < DEVIATIONS * chance(100 * low, looks), percent


# As C++ and Rust compilers call them, and as gcc calls what it makes of a function for one kind of call.
MANGLED = {
    "_ZN4math5solveINS_6matrixEEEvT_": "math::solve<math::matrix>",
    "_ZN4math3fft17h0123456789abcdefE": "math::fft",
    "sort.constprop.0": "sort",
}
BURN = """
void {label}(void) __asm__("{symbol}");
void {label}(void) {{ for (volatile unsigned long i = 0; i < 800000000; i++); }}
"""


def test_native_functions_have_the_names_of_their_sources(any_python, run, tmp_path):
    labels = {"burn%d" % i: symbol for i, symbol in enumerate(MANGLED)}
    source = "".join(BURN.format(label=label, symbol=symbol) for label, symbol in labels.items())
    calls = "".join("%s(); " % label for label in labels)
    (tmp_path / "mangled.c").write_text(source + "void burn(void) { " + calls + "}")
    library = tmp_path / "mangled.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, tmp_path / "mangled.c"], check=True)
    ran = run(any_python, "-c", f"import ctypes, json; ctypes.CDLL('{library}').burn(); print(json.dumps(dict()))")
    found = {row["function"] for row in ran.native_functions if row["library"] == str(library)}
    assert found >= set(MANGLED.values())


def allowed(percent, ran, function):
    """A call that keeps the kernel busy for long is one sample of much weight; ticks come 100 times a second at the
    least."""
    seconds = sum(ran.seconds(function, part) for part in ("python", "native", "kernel"))
    looks = min(ran.looks.effective(function), 100 * seconds)
    return BULK + DEVIATIONS * chance(percent, looks) + ran.edge_percent(function)


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_bulk(python, run):
    ran = run(python, TARGETS / "bulk.py", SECONDS / 2)
    for function, truth in ran.truth.items():
        system = 100 * truth["system"]
        assert abs(ran.kernel_percent(function) - system) < allowed(system, ran, function), (function, truth)
        if truth["part"] in ("python", "native") and system < 50:
            native = 100 if truth["part"] == "native" else 0
            assert abs(ran.native_percent(function) - native) < allowed(native, ran, function), function
