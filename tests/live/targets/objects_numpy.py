"""As objects.py, for NumPy's scalars and arrays. Says {"missing": true} where there is no NumPy."""

import decimal
import json
import random
import re
import struct
import sys

try:
    import numpy
except ImportError:
    numpy = None

values = []
cases = []


def add(value, expected):
    values.append(value)
    cases.append({"address": id(value), "type": type(value).__name__, "text": expected, "group": type(value).__name__})


def positional(match):
    """NumPy 2.4 and later write exponents from 1e3 (float16) or 1e7 (float32) on, earlier ones and Python from 1e16 on."""
    text = match.group()
    if not 1 <= abs(float(text)) < 1e16:
        return text
    return format(decimal.Decimal(text), "f")


def shown(value):
    """As NumPy 2.0 writes it, whatever NumPy this is."""
    number = re.sub(r"^np\.\w+\((.*)\)$|^\((.*)\)$", r"\1\2", repr(value))
    number = re.sub(r"\d(\.\d+)?e\+\d+", positional, number)
    if isinstance(value, numpy.floating) and re.match(r"-?\d+$", number):
        number += ".0"
    return "np.%s(%s)" % (type(value).__name__, number)


def add_scalars():
    generator = random.Random(7)
    for name, bits in (("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64))):
        for size in bits:
            kind = getattr(numpy, "%s%d" % (name, size))
            limits = numpy.iinfo(kind)
            for value in (0, 1, limits.min, limits.max, generator.randint(limits.min, limits.max)):
                add(kind(value), "np.%s(%d)" % (kind.__name__, value))
    add(numpy.longlong(-3), "np.longlong(-3)")
    add(numpy.ulonglong(2**64 - 1), "np.ulonglong(%d)" % (2**64 - 1))
    for value in (True, False):
        add(numpy.bool_(value), "np.%s_" % value)
    for bits in range(0, 1 << 16, 11):
        value = numpy.frombuffer(struct.pack("<H", bits), numpy.float16)[0]
        add(value, shown(value))
    for _ in range(2000):
        value = numpy.frombuffer(struct.pack("<I", generator.getrandbits(32)), numpy.float32)[0]
        add(value, shown(value))
        value = numpy.frombuffer(struct.pack("<Q", generator.getrandbits(64)), numpy.float64)[0]
        add(value, shown(value))
    for exponent in range(-149, 128):
        value = numpy.ldexp(numpy.float32(1), exponent)
        add(value, shown(value))
    for value in (0, 1j, -0.0, 1 + 2j, -1.5 - 0.25j, 1e20 + 1e-7j):
        add(numpy.complex128(value), shown(numpy.complex128(value)))
        add(numpy.complex64(value), shown(numpy.complex64(value)))
    add(numpy.str_("it's é"), "np.str_(\"it's é\")")
    add(numpy.bytes_(b"x\0y"), "np.bytes_(b'x\\x00y')")


def add_times():
    generator = random.Random(11)
    units = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"]
    for unit in units + ["25" + unit for unit in units]:
        for bits in (0, 1, 4, 8, 14, 20, 30, 62 if units.index(unit.lstrip("25")) > units.index("s") else 34):
            for value in {generator.randint(-(1 << bits), 1 << bits) for _ in range(4)}:
                value //= 25 if unit[0] == "2" else 1
                # A year beyond these is written with a sign, or not at all.
                date = numpy.datetime64(value, unit)
                if re.match(r"[0-9]{4}(\D|$)", str(date)):
                    add(date, "np.datetime64('%s')" % date)
                add(numpy.timedelta64(value, unit), "np.timedelta64(%d,'%s')" % (value, unit))
    for day in range(-800000, 800000, 997):
        add(numpy.datetime64(day, "D"), "np.datetime64('%s')" % numpy.datetime64(day, "D"))
    add(numpy.datetime64("NaT"), "np.datetime64('NaT')")
    add(numpy.datetime64("NaT", "ns"), "np.datetime64('NaT')")
    add(numpy.timedelta64("NaT"), "np.timedelta64('NaT')")
    add(numpy.timedelta64("NaT", "s"), "np.timedelta64('NaT','s')")
    add(numpy.timedelta64(-7), "np.timedelta64(-7)")


def add_arrays():
    for shape in ((), (0,), (3,), (3, 4), (2, 3, 4)):
        text = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        for kind, name in (("f8", "float64"), ("f4", "float32"), ("i2", "int16"), ("?", "bool"), ("O", "object"),
                           ("c16", "complex128"), (">f4", ">f4"), ("U5", "<U5"), (">U5", ">U5"), ("S3", "S3"), ("V7", "V7"),
                           ("M8[s]", "datetime64[s]"), ("m8[25ns]", "timedelta64[25ns]"), ("M8", "datetime64"), (">M8[D]", ">M8[D]")):
            add(numpy.zeros(shape, kind), "array(shape=(%s), dtype=%s)" % (text, name))
    add(numpy.zeros((2, 2))[::-1].T, "array(shape=(2, 2), dtype=float64)")
    add(numpy.ma.zeros(3), "MaskedArray(shape=(3,), dtype=float64)")
    add(numpy.dtype("f4"), "dtype('float32')")


def main():
    if numpy is None:
        print(json.dumps({"missing": True}), flush=True)
        return
    from objects import pointer_of_runtime

    add_scalars()
    add_times()
    add_arrays()
    print(json.dumps({"runtime": pointer_of_runtime(), "cases": cases}), flush=True)
    sys.stdin.read()


main()
