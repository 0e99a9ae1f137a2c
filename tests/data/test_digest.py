"""Digests of values and functions."""

import decimal
import enum
import functools
import importlib
import logging
import os
import pickle
import random
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from tune_tf.data.digest import digest

SIZE = 3
TABLE = {"scale": 2}


def helper(record):
    return record * SIZE


class Decoder:
    offset = 1

    def __init__(self, size):
        self.size = size

    def decode(self, record):
        return self.resized(record) + self.offset

    def resized(self, record):
        return record * self.size

    def __call__(self, record):
        return record


@dataclass(frozen=True)
class Point:
    x: int


class Kind(enum.Enum):
    A = 1
    B = 2


def closing(value):
    return lambda record: (record, value)


def defaulting(value):
    return lambda record, value=value: (record, value)


def naming(value):
    return lambda record, *, value=value: (record, value)


def nesting(value):
    def outer(record):
        def inner():
            return record, value

        return inner()

    return outer


def partially(value):
    return functools.partial(max, value, key=None)


def wrapping(value):
    return functools.lru_cache(closing(value))


def holding(value):
    return Decoder(value).decode


def being_called(value):
    return Decoder(value)


MADE = [
    closing,
    defaulting,
    naming,
    nesting,
    partially,
    wrapping,
    holding,
    being_called,
    lambda value: staticmethod(closing(value)),
    lambda value: property(closing(value)),
    lambda value: functools.partial(closing(value)),
    lambda value: [1, {"a": (closing(value),)}],
    lambda value: Point(value),
    lambda value: type("Local", (), {"value": value}),
    lambda value: type("Local", (), {"method": closing(value)})().method,
]
VALUES = [
    (1, 2),
    (1, True),
    (1, 1.0),
    (np.arange(2), np.arange(1, 3)),
    ({"size": 1}, {"size": 2}),
    (closing(1), closing(2)),
    (Point(1), Point(2)),
    (Kind.A, Kind.B),
    (len, max),
    (np.sin, np.cos),
    (random.Random(1), random.Random(2)),
    (np.random.default_rng(1), np.random.default_rng(2)),
    (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    (Path("a"), Path("b")),
    (re.compile("a"), re.compile("b")),
    (int, float),
    (slice(1), slice(2)),
    (range(2), range(3)),
    (1 + 2j, 1 - 2j),
    (os.path.join, os.path.split),
    (logging.getLogger("a"), logging.getLogger("b")),
    ("a".join, "b".join),
]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize(("one", "other"), VALUES)
def test_digest_of_a_function_depends_on_the_values_it_holds(make, one, other):
    assert digest(make(one)) == digest(make(one)) is not None
    assert digest(make(one)) != digest(make(other))


@pytest.mark.parametrize("make", [make for make in MADE if make is not wrapping])
@pytest.mark.parametrize("value", [one for one, _ in VALUES])
def test_digest_is_unchanged_by_pickling(make, value):
    made = make(value)
    if isinstance(made, staticmethod | property):
        made = made.__func__ if isinstance(made, staticmethod) else made.fget
    assert digest(pickle.loads(cloudpickle.dumps(made))) == digest(made)


@pytest.mark.parametrize(
    ("name", "value"), [("SIZE", 4), ("helper", lambda record: record), ("TABLE", {"scale": 3})]
)
def test_global_values_that_a_function_names_count(monkeypatch, name, value):
    def fn(record):
        return [helper(record) for _ in range(TABLE["scale"])]

    before = digest(fn)
    monkeypatch.setitem(globals(), name, value)
    assert digest(fn) != before


def test_global_values_that_it_does_not_name_do_not_count(monkeypatch):
    before = digest(helper)
    monkeypatch.setitem(TABLE, "scale", 5)
    assert digest(helper) == before


@pytest.mark.parametrize("name", ["decode", "resized", "offset"])
def test_all_of_a_class_counts_for_its_methods(monkeypatch, name):
    before = digest(Decoder(1).decode)
    monkeypatch.setattr(Decoder, name, 7 if name == "offset" else lambda self, record: None)
    assert digest(Decoder(1).decode) != before


def test_another_code_under_the_same_name_counts():
    def defined(text):
        scope = {}
        exec(text, scope)
        return scope["fn"]

    texts = [
        "def fn(a): return a + 1",
        "def fn(a): return a + 2",
        "def fn(a): return a - 1",
        "def fn(b): return b + 1",
        "def fn(a, *b): return a + 1",
        "def fn(a):\n  try: return a + 1\n  except ValueError: return 1",
        "def fn(a): return [b + 1 for b in a]",
        "def fn(a): return [b + 2 for b in a]",
        "fn = lambda a: a.real",
        "fn = lambda a: a.imag",
    ]
    assert len({digest(defined(text)) for text in texts}) == len(texts)
    assert digest(defined(texts[0])) == digest(defined("\n\n" + texts[0]))


MODULE = """
import {library}
SIZE = {size}
class Sizes:
    one = {size}
def decode(record):
    return record * SIZE
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes and imports a module of the user's own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def written(size, library="math"):
        (tmp_path / "users_own.py").write_text(MODULE.format(size=size, library=library))
        importlib.invalidate_caches()
        if "users_own" in sys.modules:
            return importlib.reload(sys.modules["users_own"])
        return importlib.import_module("users_own")

    yield written
    sys.modules.pop("users_own", None)


users_own = None  # a module, in tests


def by_attribute(record):
    return users_own.SIZE


def by_attribute_of_class(record):
    return [users_own.Sizes.one for _ in range(2)]


def by_whole_module(record):
    return vars(users_own)["SIZE"]


def by_import(record):
    from users_own import decode

    return decode(record)


def by_import_of_module(record):
    import users_own as own

    return own.decode(record)


def test_a_module_of_the_users_own_counts_by_what_is_used_of_it(module, monkeypatch):
    monkeypatch.setitem(globals(), "users_own", module(1))

    def digests():
        fns = [by_attribute, by_attribute_of_class, by_whole_module, by_import, by_import_of_module]
        return [digest(fn) for fn in (users_own.decode, closing(users_own), *fns)]

    before = digests()
    assert None not in before
    assert digests() == before
    module(2)
    assert not set(before) & set(digests())


CANNOT = {
    "a lock": threading.Lock,
    "an open file": lambda: sys.stdout,
    "a generator": lambda: (i for i in range(3)),
    "a closure over a lock": lambda: closing(threading.Lock()),
    "a method of what holds a lock": lambda: Decoder(threading.Lock()).decode,
    "a lock in a set": lambda: {threading.Lock()},
    "too deep": lambda: functools.reduce(lambda value, _: [value], range(10**5), 1),
}


@pytest.mark.parametrize("make", CANNOT.values(), ids=CANNOT.keys())
def test_objects_that_cannot_be_compared_have_no_digest(make):
    assert digest(make()) is None


def test_digests_are_equal_in_different_processes(tmp_path):
    """With another order of sets, and addresses of its own."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, functools\n"
        "from tune_tf.data.digest import digest\n"
        "NAMES = {'a', 'b', 'c', 'd'}\n"
        "class C:\n"
        "    def __init__(self): self.x = {'e', 'f', 'g'}\n"
        "    def f(self, r): return r in NAMES or r in {'u', 'v', 'w'} or np.sin(r)\n"
        "print(digest([C().f, functools.partial(C().f, 3), frozenset('xyz')]).hex())\n"
    )
    told = {
        subprocess.run(
            [sys.executable, script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(told) == 1


def test_recursive_functions_have_a_digest():
    def even(number):
        return number == 0 or odd(number - 1)

    def odd(number):
        return number != 0 and even(number - 1)

    assert digest(even) not in (None, digest(odd))


class Loud:
    """Says that it equals everything."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return True

    __hash__ = None


def read_only(array):
    array.flags.writeable = False
    return array


SAME = {
    "orders in memory": (np.zeros((2, 3), order="F"), np.zeros((2, 3))),
    "read-only": (np.ones(3), read_only(np.ones(3))),
    "no numbers": (np.zeros((0, 3)), np.zeros((0, 3))),
    "dates": (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-01"], "M8[D]")),
    "nan": (float("nan"), float("nan")),
    "arrays of nan": (np.array([float("nan")]), np.array([float("nan")])),
    "objects in an array": (np.array([1, "a"], object), np.array([1, "a"], object)),
    "sets": ({"a", "b", "c"}, {"c", "b", "a"}),
    "frames": (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]})),
    "objects": (Loud(1), Loud(1)),
}
OTHER = {
    "types of arrays": (np.arange(3), np.arange(3.0)),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "an array and a list": (np.arange(3), [0, 1, 2]),
    "masks": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "0.0 and -0.0": (0.0, -0.0),
    "numpy's and Python's": (np.float64(1), 1.0),
    "a list and a tuple": ([1], (1,)),
    "a text and bytes": ("a", b"a"),
    "equal to everything": (Loud(1), Loud(2)),
    "frames": (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})),
    "keys that are equal": ({1: 2}, {True: 2}),
    "boundaries": (["ab", "c"], ["a", "bc"]),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME.keys())
def test_equal_values_have_equal_digests(one, other):
    assert digest([one]) == digest([other]) is not None


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER.keys())
def test_digests_are_equal_only_if_type_and_content_are(one, other):
    assert digest([one]) != digest([other])
