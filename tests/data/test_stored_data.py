"""Loaded data that are parts of prepared rows, of which a node holds one copy."""

import os
import sys
import threading

import numpy as np
import pytest

from tune_tf.data import NodeDataLoader, prepared
from tune_tf.data.node_cache.stored_data import StoredData
from tune_tf.data.node_cache.workload_copies import AttributeChanges
from tune_tf.data.prepare.chunk import AssembledRows
from tune_tf.data.prepare.prepare_actor import FetchedRows
from tune_tf.workload import Data, Workload

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROWS = {"image": np.arange(8_000, dtype=np.float32).reshape(500, 16), "label": np.arange(500)}


@pytest.fixture
def fetched():
    """Return prepared rows in the object store."""
    import ray

    reference = ray.put(AssembledRows(ROWS, np.arange(500), ()))
    return FetchedRows(reference, ray.get(reference))


def split(rows, at=400):
    x, y = rows["image"], rows["label"]
    return Data((x[:at], y[:at]), (x[at:], y[at:]))


CASES = {
    "slices": (split, {0, 1, 2, 3}),
    "no validation": (lambda rows: Data((rows["image"], rows["label"])), {0, 1}),
    "an empty validation": (lambda rows: Data((rows["image"], rows["label"]), ()), {0, 1}),
    "nested": (
        lambda rows: Data((({"a": rows["image"][:400]}, [rows["image"][400:]]), rows["label"])),
        {0, 1, 2},
    ),
    "other shape and type": (
        lambda rows: Data((rows["image"].reshape(500, 4, 4), rows["label"].view("datetime64[s]"))),
        {0, 1},
    ),
    "a start that TensorFlow cannot read": (lambda rows: split(rows, 401), {0, 1, 2}),
    "less than half of the rows": (lambda rows: Data((rows["image"] * 2, rows["label"])), set()),
    "other order": (lambda rows: split({name: leaf[::-1] for name, leaf in rows.items()}), set()),
}


@pytest.mark.parametrize(("data_of", "inside"), CASES.values(), ids=CASES.keys())
def test_arrays_inside_prepared_rows_are_not_stored_again(fetched, data_of, inside):
    import ray

    stored = StoredData.of(data_of(fetched.assembled.rows), AttributeChanges({}), [fetched])
    copies = [isinstance(array, np.ndarray) for array in stored.arrays]
    assert {i for i, is_copy in enumerate(copies) if not is_copy} == inside

    found = ray.get(ray.put(stored)).fetch()
    expected = data_of(ROWS)
    np.testing.assert_equal(found.train, expected.train)
    np.testing.assert_equal(found.validation, expected.validation)
    assert [type(part) for part in found.train] == [type(part) for part in expected.train]


class Prepared(Workload):
    """Rows that are prepared, split in two."""

    def load_data(self, config):
        self.loader = os.getpid()
        return split(prepared(range(500), row, version="stored data").rows)

    def build_model(self, config):
        raise NotImplementedError


def row(number):
    return {"image": np.full(1024, number, np.float32), "label": number}


class Process:
    """A process that loads data as a trial does."""

    def load(self):
        """Return the rows, and whether they are the node's prepared ones, read-only."""
        workload = Prepared()
        data = NodeDataLoader(workload, "stored data").load({})
        assert workload.loader != os.getpid()
        rows = prepared(range(500), row, version="stored data").rows
        x, validation_x = data.train[0], data.validation[0]
        is_same = np.shares_memory(x, rows["image"]) and np.shares_memory(
            validation_x, rows["image"]
        )
        return np.concatenate([x, validation_x]), is_same and not x.flags.writeable


@pytest.fixture
def process():
    """Return a function that starts a process; all end with the test."""
    import ray

    here = sys.modules[__name__]
    ray.cloudpickle.register_pickle_by_value(here)
    started = []

    def start():
        started.append(ray.remote(Process).options(num_cpus=0).remote())
        return started[-1]

    yield start
    for each in started:
        ray.kill(each)
    ray.cloudpickle.unregister_pickle_by_value(here)


def test_a_trial_maps_the_prepared_rows_themselves(process):
    import ray

    rows, is_same = ray.get(process().load.remote())
    assert is_same
    np.testing.assert_array_equal(rows[:, 0], np.arange(500))


@pytest.mark.slow
def test_data_whose_prepared_rows_were_lost_are_loaded_again(process):
    import ray
    from ray.util import list_named_actors

    before, _ = ray.get(process().load.remote())
    for actor in list_named_actors(all_namespaces=True):
        if actor["name"].startswith("preparer-"):
            ray.kill(ray.get_actor(**actor))
    threading.Event().wait(1.0)
    after, is_same = ray.get(process().load.remote())
    np.testing.assert_array_equal(after, before)
    assert is_same
