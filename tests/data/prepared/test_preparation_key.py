"""Which preparations have the same content, so that one run serves them."""

import functools
import itertools
import sys
import threading

import numpy as np
import pytest
from preparing_functions import image_of

from tune_tf.data import LoadCache, prepared
from tune_tf.data.prepare.preparation import Preparation

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_preparation_key_depends_on_records_function_and_version():
    records = ["a", "b"]

    def key(records=records, fn=None, stop=False, version=""):
        return Preparation(records, fn or image_of(), stop, version).key()

    keys = [
        key(),
        key(records=["ab"]),
        key(records=["b", "a"]),
        key(fn=lambda record: record),
        key(stop=True),
        key(version="2"),
    ]
    assert len(set(keys)) == len(keys)
    assert key(records=["a", b"b".decode()]) == keys[0]
    assert key(records=[np.arange(2)]) == key(records=[np.arange(2)])
    assert key(records=[threading.Lock()]) != key(records=[threading.Lock()])


def by_config(config):
    return lambda record: np.full(2, record + config["size"])


def by_partial(config):
    def fn(record, given):
        return np.full(2, record + given["size"])

    return functools.partial(fn, given=config)


def by_default(config):
    return lambda record, given=config: np.full(2, record + given["size"])


def by_nested_function(config):
    def size():
        return config["size"]

    return lambda record: np.full(2, record + size())


def by_group(config):
    group = config["group"]
    return lambda record: np.full(2, record + group["size"])


class ByMethod:
    def __init__(self, config):
        self.config = config

    def row(self, record):
        return np.full(2, record + self.config["size"])


WAYS = {
    "closure": by_config,
    "partial": by_partial,
    "default": by_default,
    "nested function": by_nested_function,
    "group": by_group,
    "method": lambda config: ByMethod(config).row,
}


@pytest.fixture
def by_value(ray_cluster):
    """Let the processes of the cluster have this module's functions."""
    import ray

    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)
    yield
    ray.cloudpickle.unregister_pickle_by_value(here)


@pytest.mark.parametrize("made", WAYS.values(), ids=WAYS.keys())
def test_a_function_that_takes_the_config_along_reads_all_of_it(made):
    cache = LoadCache(lambda config: Preparation([1], made(config), True).key())
    configs = [{"size": size, "group": {"size": size}} for size in (1, 2, 1)]
    first, second, third = map(cache.get, configs)
    assert first == third != second
    assert cache.get({"size": 1, "group": {"size": 1}}) is third


@pytest.mark.usefixtures("by_value")
@pytest.mark.parametrize("made", [by_config, WAYS["method"]], ids=["closure", "method"])
def test_a_function_that_takes_the_config_along_makes_rows_of_each_config(made):
    cache = LoadCache(lambda config: prepared([1, 2], made(config)).rows.tolist())
    for size in (10, 20, 10):
        rows = cache.get({"size": size, "group": {"size": size}})
        assert rows == [[1 + size] * 2, [2 + size] * 2]


OFFSET = 1


def with_offset(record):
    return np.full(2, record + OFFSET)


@pytest.mark.slow
@pytest.mark.usefixtures("by_value")
def test_a_global_value_makes_another_content(monkeypatch, counted):
    for offset, num_run in [(1, 1), (2, 2), (1, 2)]:
        monkeypatch.setitem(globals(), "OFFSET", offset)
        assert prepared([1], with_offset).rows.tolist() == [[1 + offset] * 2]
        assert counted().num_run == num_run


def test_a_function_defined_anew_makes_another_content(counted):
    for number in (1, 2, 1):
        scope = {"np": np, "__name__": "__main__"}
        exec(f"def fn(record): return np.full(2, record + {number})", scope)
        assert prepared([1], scope["fn"]).rows.tolist() == [[1 + number] * 2]
    assert counted().num_run == 2


@pytest.mark.slow
@pytest.mark.usefixtures("by_value")
def test_what_cannot_be_compared_is_prepared_anew(counted):
    class Opaque:
        def __reduce__(self):
            return opaque, (next(NUMBERS),)

    for _ in range(2):
        held = Opaque()
        assert prepared([1], lambda record, held=held: np.float32(record)).rows.tolist() == [1]
    assert counted().num_run == 2


NUMBERS = itertools.count()


def opaque(number):
    return number
