"""Writes, for every code object of the running interpreter's standard library, its line table and what the
interpreter itself says about each instruction. Runs under CPython 3.8 and later; read by tests/tools/check_linetables.c.

Stream, little-endian:  "strobelt" | u32 minor version
  then for each code object  u32 label size | i32 co_firstlineno | u32 table size | u32 instructions | label | table
                             | instructions x {i32 line, end line, column, end column}, None as -1
There is one quadruple for every two bytes of bytecode.
"""

import argparse
import array
import os
import struct
import sys
import sysconfig
import types
import warnings

MINOR = sys.version_info[1]
NOT_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
TEST_PACKAGES = {"test", "tests", "idle_test"}


def positions(code):
    """3.11+: the interpreter's own iterator."""
    flat = array.array("i")
    for position in code.co_positions():
        flat.extend([-1 if value is None else value for value in position])
    return flat


def positions_from_lines(code):
    """3.10: the same for lines alone."""
    flat = array.array("i")
    for start, end, line in code.co_lines():
        line = -1 if line is None else line
        flat.extend(array.array("i", [line, line, -1, -1]) * ((end - start) // 2))
    return flat


def positions_from_addresses(code):
    """3.8, 3.9: the function behind f_lineno, which has no other way out to Python."""
    import ctypes

    address_to_line = ctypes.pythonapi.PyCode_Addr2Line
    address_to_line.argtypes = [ctypes.py_object, ctypes.c_int]
    address_to_line.restype = ctypes.c_int
    flat = array.array("i")
    for address in range(0, len(code.co_code), 2):
        line = address_to_line(code, address)
        flat.extend([line, line, -1, -1])
    return flat


if MINOR >= 11:
    truth = positions
elif MINOR == 10:
    truth = positions_from_lines
else:
    truth = positions_from_addresses


def modules(with_tests):
    for folder, subfolders, files in os.walk(sysconfig.get_path("stdlib")):
        hidden = NOT_LIBRARY if with_tests else NOT_LIBRARY | TEST_PACKAGES
        subfolders[:] = sorted(name for name in subfolders if name not in hidden)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.path.isfile(path):  # a distribution may leave dangling links
                yield path


def compiled(path):
    with open(path, "rb") as file:
        source = file.read()
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # samples of bad source that tests of the library hold
        return None


def emit(out, code, path):
    table = code.co_linetable if MINOR >= 10 else code.co_lnotab
    expected = truth(code)
    label = "{}:{}:{}".format(path, code.co_firstlineno, code.co_name).encode("utf-8", "backslashreplace")
    out.write(struct.pack("<IiII", len(label), code.co_firstlineno, len(table), len(expected) // 4))
    out.write(label)
    out.write(table)
    out.write(expected.tobytes())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            emit(out, constant, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-tests", action="store_true", help="the library's own test packages too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    out = sys.stdout.buffer
    out.write(b"strobelt" + struct.pack("<I", MINOR))
    for path in modules(arguments.with_tests):
        code = compiled(path)
        if code is not None:
            emit(out, code, path)
    out.flush()


main()
