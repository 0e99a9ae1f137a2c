"""Rows of a pipeline over replicas and processes: each exactly once."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from streams import as_it_is, streamed
from trials import Given, begin, draw

from tune_tf.data import Pipeline
from tune_tf.training.input.stream import Stream
from tune_tf.training.loop import GraphLoop
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
layers = keras.layers


def of_worker(rank, num):
    """Return the part of a batch that one of several processes reads."""
    from tune_tf.training.replicas.batch_parts import split_rows

    return lambda count: (0, count) if count < num else split_rows(count, rank, num)


SETTINGS = {"plain": {}, "mapped": {"map": as_it_is}}
PARTS = [
    ("plain", (41, 9), 3),
    ("mapped", (37, 12), 2),
    ("plain", (10, 4), 3),
    ("mapped", (5, 5), 3),
    ("plain", (36, 12), 2),
    ("mapped", (36, 12), 1),
]


def params(table, num_guards):
    """Return cases of a test, of which the first are in the guard of all changes."""
    return [
        pytest.param(*row, marks=pytest.mark.slow if number >= num_guards else ())
        for number, row in enumerate(table)
    ]


@pytest.mark.parametrize(("kind", "sizes", "num"), params(PARTS, 5))
def test_processes_read_their_parts_of_each_batch(kind, sizes, num):
    num_rows, size = sizes

    def batches(window):
        stream = Stream(Pipeline(draw(num_rows).train, **SETTINGS[kind]), "train", window)
        return [
            (numbers.numpy().tolist(), rows.numpy())
            for numbers, (rows, _) in stream.batches(size, seed=1, epoch=1, shuffled=True)
        ]

    parts = [batches(of_worker(rank, num)) for rank in range(num)]
    for number, (numbers, rows) in enumerate(batches(lambda count: (0, count))):
        of_batch = [part[number] for part in parts]
        if len(numbers) < num:
            assert all(part[0] == numbers for part in of_batch)
        else:
            assert sum((part[0] for part in of_batch), []) == numbers  # noqa: RUF017  a few
            np.testing.assert_array_equal(np.concatenate([part[1] for part in of_batch]), rows)


def test_a_process_maps_its_own_rows_only():
    read = []

    def counted(x, y):
        return tf.ensure_shape(tf.numpy_function(noted, [x], tf.float32), (6,)), y

    def noted(x):
        read.append(x)
        return x

    stream = Stream(Pipeline(draw(40).train, counted), "train", of_worker(1, 2))
    looked_at = len(read)
    list(stream.batches(8, seed=0, epoch=0, shuffled=True))

    assert len(read) - looked_at == 20


def recorder(seen):
    """Return what notes the numbers of the rows that each replica gets."""

    class Recorded(layers.Layer):
        def call(self, x):
            def note(numbers):
                seen.append(numbers[:, 0].astype(int).tolist())
                return numbers

            return tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), x.shape)

    return Recorded()


SHARDS = [
    (3, 37, "pipeline"),
    (2, 41, "arrays"),
    (3, 36, "arrays"),
    (1, 37, "arrays"),
    (2, 36, "pipeline"),
]


@pytest.mark.parametrize(("num", "num_rows", "source"), params(SHARDS, 3))
def test_each_row_of_an_epoch_is_seen_once_over_all_shards(replicas_of, num, num_rows, source):
    seen = []

    def recording(config):
        model = keras.Sequential([keras.Input((6,)), recorder(seen), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    x, y = draw(num_rows).train
    x[:, 0] = np.arange(num_rows)
    data = Data(train=(x, y))
    workload = Given(recording, streamed(data) if source == "pipeline" else data)
    loop = begin(GraphLoop(replicas_of(num)), workload)
    for _ in range(2):
        seen.clear()
        loop.epoch()
        assert sorted(np.concatenate(seen)) == [*range(num_rows)]
