"""Epochs by ``keras.Model.fit``."""

import threading

import keras
import numpy as np
import pytest
from trials import SEED, Given, draw

from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.fit_loop import FitLoop
from tune_tf.workload import Data

pytestmark = pytest.mark.tf
callbacks, layers = keras.callbacks, keras.layers


def build(config):
    model = keras.Sequential(
        [
            *([] if config.get("lazy") else [keras.Input((6,))]),
            layers.Dense(8, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(3),
        ]
    )
    model.compile(
        keras.optimizers.Adam(config.get("rate", 0.01)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def begun(replicas, *made, config=None, data=None, seed=SEED):
    """Return a loop in a trial with callbacks."""
    workload = Given(build, data or draw(45, 19), callbacks=lambda config: made)
    loop = FitLoop(replicas)
    loop.start(workload, config or {}, workload.load_data({}), seed)
    return loop


def epochs(loop, count):
    return [loop.epoch() for _ in range(count)]


def test_a_second_trial_gives_the_numbers_of_a_fresh_one(replicas_of):
    workload = Given(build, draw(45, 19))
    loop = begun(replicas_of(1), seed=7)
    first = epochs(loop, 3)
    loop.finish()
    loop.start(workload, {}, draw(45, 19), 7)
    again = epochs(loop, 3)
    loop.finish()
    loop.start(workload, {}, draw(45, 19), 8)
    other = epochs(loop, 3)
    loop.finish()

    assert again == first
    assert other != first


def test_an_epoch_after_the_end_is_an_error_and_no_deadlock(replicas_of):
    loop = begun(replicas_of(1), callbacks.EarlyStopping("loss", min_delta=1e6, patience=1))
    epochs(loop, 2)

    with pytest.raises(RuntimeError, match="this trial has ended"):
        loop.epoch()
    loop.finish()


def test_an_error_inside_fit_comes_out_of_the_epoch(replicas_of):
    def fail(epoch, logs):
        raise KeyError("from a callback")

    loop = begun(replicas_of(1), callbacks.LambdaCallback(on_epoch_begin=fail))

    with pytest.raises(KeyError, match="from a callback"):
        loop.epoch()
    loop.finish()


def test_the_end_of_a_trial_ends_its_thread(replicas_of):
    before, ended, batches = threading.active_count(), [], []
    noting = callbacks.LambdaCallback(
        on_train_end=ended.append, on_train_batch_end=lambda batch, logs: batches.append(batch)
    )
    begun(replicas_of(1), noting).finish()
    loop = begun(replicas_of(1), noting)
    loop.epoch()
    loop.finish()

    assert threading.active_count() == before
    assert len(ended) == 1
    assert batches == list(range(6))


@pytest.mark.parametrize(
    "lazy",
    [
        pytest.param(False, id="built", marks=pytest.mark.slow),
        pytest.param(True, id="built by the first batch"),
    ],
)
def test_a_trial_goes_on_from_a_checkpoint(lazy, replicas_of, tmp_path):
    seen = []
    noting = callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch))
    loop = begun(replicas_of(1), config={"lazy": lazy})
    losses = [metrics["loss"] for metrics in epochs(loop, 6)]
    loop.state().write(tmp_path)
    weights = loop._current.model.get_weights()
    loop.finish()
    restored = begun(replicas_of(1), noting, config={"lazy": lazy})
    restored.restore(Checkpoint.read(tmp_path))

    for one, other in zip(restored._current.model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert restored.epoch()["loss"] < losses[0]
    assert seen == [6]
    restored.finish()


class Batches(keras.utils.PyDataset):
    """Batches of eight rows."""

    def __init__(self, part):
        super().__init__()
        self._part = part

    def __len__(self):
        return (len(self._part[0]) + 7) // 8

    def __getitem__(self, index):
        return tuple(a[8 * index : 8 * index + 8] for a in self._part)


def tf_data(part):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(part).batch(8)


@pytest.mark.parametrize("kind", [Batches, tf_data])
def test_what_only_fit_takes_is_trained_on(kind, replicas_of):
    rows = draw(45, 19)
    data = Data(kind(rows.train), kind(rows.validation))
    loop = begun(replicas_of(1), data=data, config={"lazy": True})
    loop.state()

    first, last = epochs(loop, 5)[::4]
    assert set(last) == {"loss", "val_loss"}
    assert last["loss"] < first["loss"]
    loop.finish()
