"""Digests of values and functions."""

import functools
import importlib
import os
import pickle
import random
import subprocess
import sys
import threading

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
        return record * self.size + self.offset


def closing(value):
    return lambda record: (record, value)


def nesting(value):
    def outer(record):
        def inner():
            return record, value

        return inner()

    return outer


FUNCTIONS = {
    "closure": closing,
    "default": lambda value: lambda record, value=value: (record, value),
    "default of a keyword": lambda value: lambda record, *, value=value: (record, value),
    "inner function": nesting,
    "partial": lambda value: functools.partial(max, value, key=None),
    "cached": lambda value: functools.lru_cache(closing(value)),
    "method": lambda value: Decoder(value).decode,
    "property": lambda value: property(closing(value)),
    "nested": lambda value: [1, {"a": (closing(value),)}],
    "class": lambda value: type("Local", (), {"value": value, "method": staticmethod(len)}),
}
VALUES = {
    "types": (1, True),
    "arrays": (np.arange(2), np.arange(1, 3)),
    "functions": (closing(1), closing(2)),
    "built in": (np.sin, np.cos),
    "generators": (random.Random(1), random.Random(2)),
}


@pytest.mark.parametrize("make", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize(("one", "other"), VALUES.values(), ids=VALUES.keys())
def test_digest_of_a_function_depends_on_the_values_it_holds(make, one, other):
    assert digest(make(one)) == digest(make(one)) is not None
    assert digest(make(one)) != digest(make(other))


@pytest.mark.parametrize("name", ["closure", "default", "inner function", "method", "class"])
def test_digest_is_unchanged_by_pickling(name):
    made = FUNCTIONS[name](closing(np.arange(2)))
    assert digest(pickle.loads(cloudpickle.dumps(made))) == digest(made)


@pytest.mark.parametrize(
    ("name", "value"), [("SIZE", 4), ("helper", lambda record: record), ("TABLE", {"scale": 3})]
)
def test_global_values_that_a_function_names_count(monkeypatch, name, value):
    def fn(record):
        return [helper(record) for _ in range(TABLE["scale"])]

    before, of_other = digest(fn), digest(closing(1))
    monkeypatch.setitem(globals(), name, value)
    assert digest(fn) != before
    assert digest(closing(1)) == of_other


@pytest.mark.parametrize("name", ["decode", "offset"])
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
SIZE = {size}
def decode(record):
    return record * SIZE
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes and imports a module of the user's own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def written(size):
        (tmp_path / "users_own.py").write_text(MODULE.format(size=size))
        importlib.invalidate_caches()
        if "users_own" in sys.modules:
            return importlib.reload(sys.modules["users_own"])
        return importlib.import_module("users_own")

    yield written
    sys.modules.pop("users_own", None)


users_own = None  # a module, in tests


def by_attribute(record):
    return users_own.SIZE


def by_import_of_module(record):
    import users_own as own

    return own.decode(record)


def test_a_module_of_the_users_own_counts_by_what_is_used_of_it(module, monkeypatch):
    monkeypatch.setitem(globals(), "users_own", module(1))

    def digests():
        return [digest(fn) for fn in (users_own.decode, by_attribute, by_import_of_module)]

    before = digests()
    assert None not in before
    assert digests() == before
    module(2)
    assert not set(before) & set(digests())


CANNOT = {
    "a lock": threading.Lock,
    "a closure over a lock": lambda: closing(threading.Lock()),
    "a method of what holds a lock": lambda: Decoder(threading.Lock()).decode,
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


SAME = {
    "orders in memory": (np.zeros((2, 3), order="F"), np.zeros((2, 3))),
    "no numbers": (np.zeros((0, 3)), np.zeros((0, 3))),
    "nan": (float("nan"), float("nan")),
    "objects in an array": (np.array([1, "a"], object), np.array([1, "a"], object)),
    "sets": ({"a", "b", "c"}, {"c", "b", "a"}),
    "frames": (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]})),
    "objects": (Decoder(1), Decoder(1)),
}
OTHER = {
    "types of arrays": (np.arange(3), np.arange(3.0)),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "an array and a list": (np.arange(3), [0, 1, 2]),
    "masks": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "0.0 and -0.0": (0.0, -0.0),
    "numpy's and Python's": (np.float64(1), 1.0),
    "a list and a tuple": ([1], (1,)),
    "frames": (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})),
    "keys that are equal": ({1: 2}, {True: 2}),
    "boundaries": (["ab", "c"], ["a", "bc"]),
    "objects": (Decoder(1), Decoder(2)),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME.keys())
def test_equal_values_have_equal_digests(one, other):
    assert digest([one]) == digest([other]) is not None


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER.keys())
def test_digests_are_equal_only_if_type_and_content_are(one, other):
    assert digest([one]) != digest([other])
