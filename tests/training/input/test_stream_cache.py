"""Rows that a pipeline keeps for later epochs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from streams import numbers_of
from trials import draw

from tune_tf.data import Pipeline
from tune_tf.errors import WorkloadError
from tune_tf.training.input.stream import Stream

pytestmark = pytest.mark.tf
layers = keras.layers


@pytest.mark.parametrize("cache", ["memory", "folder"])
def test_rows_are_mapped_once_where_they_are_cached(cache, tmp_path):
    count = tf.Variable(0)

    def counted(x, y):
        count.assign_add(1)
        return x * 2, y

    data = draw(20)
    kept = str(tmp_path) if cache == "folder" else cache
    stream = Stream(Pipeline(data.train, counted, cache=kept), "train")
    read = count.numpy()
    epochs = [list(stream.batches(8, seed=1, epoch=epoch, shuffled=True)) for epoch in (1, 2)]

    assert count.numpy() - read == 20
    for batches in epochs:
        numbers = np.concatenate([some for some, _ in batches])
        assert sorted(numbers) == list(range(20))
        np.testing.assert_array_equal(
            np.concatenate([rows[0] for _, rows in batches]), data.train[0][numbers] * 2
        )


def test_cached_rows_are_mixed_by_the_seed_of_the_epoch():
    stream = Stream(Pipeline(draw(20).train, cache="memory"), "train")
    orders = [numbers_of(stream, 8, epoch=epoch) for epoch in (1, 1, 2)]

    assert orders[0] == orders[1] != orders[2]
    assert numbers_of(stream, 8, shuffled=False) == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]


def test_cached_rows_are_mixed_alike_whatever_seed_the_process_has():
    orders = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        stream = Stream(Pipeline(draw(20).train, cache="memory"), "train")
        orders.append([numbers_of(stream, 8, epoch=epoch) for epoch in (0, 1)])

    assert orders[0] == orders[1]


def test_a_cache_goes_with_its_stream(tmp_path):
    stream = Stream(Pipeline(draw(20).train, cache=str(tmp_path)), "train")
    numbers_of(stream, 8)
    assert list(tmp_path.rglob("*train*"))
    stream._folder.cleanup()

    assert not list(tmp_path.iterdir())


def test_a_cache_without_room_is_refused_before_training(tmp_path, monkeypatch):
    import shutil
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100))
    stream = Stream(Pipeline(draw(20).train, cache=str(tmp_path)), "train")

    with pytest.raises(WorkloadError, match=r"cache of Data\.train takes .* free: leave cache out"):
        numbers_of(stream, 8)
