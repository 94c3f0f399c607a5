# -*- coding: utf-8 -*-
"""Functions whose names and files are of every string kind that CPython has, and longer than any fixed buffer."""

import types

import truth

stop = truth.main_stop()

NAMES = [
    ("latin_é", "/tmp/latin-é.py"),
    ("two_bytes_Ж", "/tmp/two-bytes-中.py"),
    ("four_bytes_𝔘", "/tmp/four-bytes-😀.py"),
    ("surrogate_\udcff", "/tmp/surrogate-\udc80.py"),
    ("long_" + "x" * 3000, "/" + "directory/" * 400 + "x.py"),
    ("ünder_" + "ü" * 3000, "/" + "pfäd/" * 800 + "x.py"),
    ("", ""),
    ("quote\"back\\slash\ttab\nnewline\x01", "/tmp/\"\\\t\n\x7f.py"),
    ("control \x1b[31m\x07\x9b\u2028\u202e\r", "/tmp/\x1b]0;title\x07\x85.py"),
    ("x" * 100_000, "/" + "x" * 100_000),
    ("\U0001d518" * 100_000, "ж" * 100_000),
    ("a", "b"),
]


def caller(call):
    return call()


def renamed(name, path):
    code = caller.__code__.replace(co_name=name, co_filename=path)
    if hasattr(code, "co_qualname"):
        code = code.replace(co_qualname="Class." + name)
    return types.FunctionType(code, {}, "whatever")


if __name__ == "__main__":
    call = stop
    for name, path in NAMES:
        call = (lambda function, argument: lambda: function(argument))(renamed(name, path), call)
    call()
