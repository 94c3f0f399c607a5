# -*- coding: utf-8 -*-
"""Stops under frames with every kind of local variable."""

import functools
import sys

import truth

truth.with_locals = True
stop = truth.main_stop()

module_integer = -7
module_text = "of the module: 日本 \udc80"
module_deleted = 1
del module_deleted


def arguments(first, second=2, /, third=3, *rest, only, default="d", **keywords):
    local = first
    return keywords["call"]()


def arguments_in_cells(first, second, *rest, only, call, **keywords):
    def inner():
        return first, rest, only, keywords, local

    local = [1, 2, {"three": (4.5, None)}]
    return call()


def free_variables(call):
    outer = "outer"
    unset = 1
    del unset

    def middle(own):
        inner_only = 3.25

        def inner():
            nonlocal outer
            outer = outer + own
            return call()

        if own is None:
            print(unset)
        return inner()

    return middle("!")


def not_yet_bound(call):
    early = 1
    call()
    late = early
    in_cell = 2
    return late, lambda: in_cell


def deleted(call):
    gone = kept = 1
    gone_cell = kept_cell = 2
    (lambda: (gone_cell, kept_cell))()
    del gone, gone_cell
    call()
    return kept


def exception_variable(call):
    try:
        raise ValueError("text")
    except ValueError as error:
        try:
            raise KeyError(error)
        except KeyError as second:
            call()
            return second


def exception_variable_gone(call):
    try:
        raise ValueError("text")
    except ValueError as error:
        error.args = ()
    call()


def comprehension(call):
    before = 1
    value = "the function's own"
    return [call() for value in range(3, 5) for other in (before, value)], value


def comprehension_with_cell(call):
    x = "outer x"
    return [(lambda: x, call()) for x in (10, 11)]


def other_comprehensions(call):
    outer = 5
    return {
        key: {call() for item in (key, outer) if item}
        for key in range(1, 3)
    }


def generator_expression(call):
    factor = 3
    return list(call() * factor for number in (1, 2))


def generator(call, argument="a"):
    sent = yield 1
    kept = "k"
    yield call(), sent


def driven(call):
    made = generator(call)
    made.send(None)
    return made.send("sent value")


async def coroutine(call, *, keyword=1):
    local = b"bytes \x00"
    return await awaited(call, bytearray(b"x"))


async def awaited(call, value):
    return call()


def drives_coroutine(call):
    made = coroutine(call)
    try:
        made.send(None)
    finally:
        made.close()


def class_body(call):
    outer = "seen from the class"

    class Body:
        attribute = 1
        annotated: int = 2
        of_function = outer
        values = [item for item in (1, 2)]

        def method(self):
            return __class__

        call()


class Spaces(dict):
    pass


class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return truth.namespaces.setdefault((name, __file__), Spaces(prepared=True))


def class_body_with_comprehension(call):
    class InComprehension(metaclass=Meta):
        attribute = 1
        values = [call() for item in (1, 2)]



def class_body_in_subclass_of_dict(call):
    class Body(metaclass=Meta):
        attribute = 1
        call()


def executed_in_one_dict(call):
    exec("here = 1\nthere = [x for x in (1, 2)]\ncall()", {"call": call})


def executed_in_two_dicts(call):
    keys = {5: "five", 2**62: "large", 2.5: "float", (1, "two"): "tuple", None: "none", b"bytes": "bytes"}
    exec("own = 'local'\ncall()", {"call": call, "is_global": True}, dict(keys, given=2))


def executed_comprehension(call):
    own = truth.namespaces["<module>", "<string>"] = {"given": 2}
    exec("own = 'local'\n[call() for item in (5, 6)]", {"call": call}, own)


def evaluated(call):
    space = truth.namespaces["<module>", "<evaluated>"] = {"given": 3}
    return eval(compile("[call() for x in (1, 2)]", "<evaluated>", "eval"), {"call": call}, space)


def method(call):
    class Base:
        def run(self, number):
            return call()

    class Derived(Base):
        def run(self, number):
            return super().run(number + 1)

    return Derived().run(2**70)


def names_of_every_kind(call, größe=1, 名前="wert"):
    𝔘 = 2
    locals_with_long_names = {}
    exec("def f(call):\n " + "x" * 3000 + " = 'long name'\n return call()", locals_with_long_names)
    return locals_with_long_names["f"](call)


def many_variables(call):
    text = "".join(" v%d = %d\n" % (i, i) for i in range(700))
    space = {}
    exec("def f(call):\n" + text + " return call()", space)
    return space["f"](call)


def values_of_every_simple_kind(call):
    nothing, yes, integer, large, negative = None, True, 12, 10**50, -(2**30)
    real, infinite, imaginary = 1.5e-7, float("-inf"), 2 - 3j
    text, quoted, wide, data = "t", "it's \"q\"\n", "日\U0001f600", b"\xff'"
    empty = [], (), {}, set(), frozenset(), ""
    nested = {"list": [1, [2, (3,)]], None: {4}, 5.5: b"", (1,): {"x": {}}}
    return call()


def traced(call):
    """While a trace function has looked at f_locals (which older versions copy into a dict)."""
    count = 1

    def trace(frame, event, argument):
        frame.f_locals
        return trace

    sys.settrace(trace)
    count = 2
    value = [count, 3]
    sys.settrace(None)
    count = 4
    return call()


def frame_object(call):
    taken = sys._getframe()
    value = 1
    seen = dict(taken.f_locals)
    value = 2
    return call()


if __name__ == "__main__":
    sys.setrecursionlimit(5000)
    call = stop
    for function in (
        arguments_in_cells, free_variables, not_yet_bound, deleted, exception_variable, exception_variable_gone,
        comprehension, comprehension_with_cell, other_comprehensions, generator_expression, driven, drives_coroutine,
        class_body, class_body_with_comprehension, class_body_in_subclass_of_dict, executed_in_one_dict,
        executed_in_two_dicts, executed_comprehension, evaluated, method, names_of_every_kind, many_variables,
        values_of_every_simple_kind, traced, frame_object,
    ):
        if function is arguments_in_cells:
            call = functools.partial(function, 1, "two", 3.5, only=None, call=call, more=[1])
        else:
            call = functools.partial(function, call)
    call = functools.partial(arguments, 1, 2, 3, 4, 5, only="o", call=call)
    # Variables of a comprehension at the level of a module, one in front of the module's own.
    module_item = "of the module"
    [call() for module_item in ("a", "b")]
