"""Keras callbacks around epochs that are one graph call."""

import keras
import pytest
from trials import Given, begin, draw

from tune_tf.errors import WorkloadError
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf
callbacks = keras.callbacks


def build(config):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


def loop_with(replicas, *made):
    """Return a loop in a trial with callbacks."""
    workload = Given(build, draw(20, 8), callbacks=lambda config: made)
    return begin(GraphLoop(workload, replicas), workload)


def rate_of(loop):
    return float(loop._current.program.model.optimizer.learning_rate.numpy())


def never_better(patience):
    """An early stopping that takes no epoch for an improvement but the first."""
    return callbacks.EarlyStopping("loss", min_delta=1e6, patience=patience)


def test_early_stopping_ends_a_trial(replicas_of):
    loop = loop_with(replicas_of(1), never_better(2))
    stopped = []
    for _ in range(3):
        loop.epoch()
        stopped.append(loop.stop_training)

    assert stopped == [False, False, True]


def test_the_next_trial_is_not_stopped(replicas_of):
    loop = loop_with(replicas_of(1), never_better(1))
    loop.epoch(), loop.epoch()
    loop.finish()
    begin(loop, loop._workload)

    assert not loop.stop_training


def test_patience_goes_on_after_a_restore(replicas_of, tmp_path):
    loop = loop_with(replicas_of(1), never_better(3))
    loop.epoch(), loop.epoch(), loop.epoch()
    loop.state().write(tmp_path)
    restored = loop_with(replicas_of(1), never_better(3))
    restored.restore(Checkpoint.read(tmp_path))
    restored.epoch()

    assert restored.stop_training


def test_a_setting_of_the_new_config_wins_over_the_saved_one(replicas_of, tmp_path):
    loop = loop_with(replicas_of(1), never_better(3))
    loop.epoch(), loop.epoch(), loop.epoch()
    loop.state().write(tmp_path)
    restored = loop_with(replicas_of(1), never_better(4))
    restored.restore(Checkpoint.read(tmp_path))
    stopped = []
    for _ in range(2):
        restored.epoch()
        stopped.append(restored.stop_training)

    assert stopped == [False, True]


def test_going_back_takes_the_counters_back(replicas_of):
    loop = loop_with(replicas_of(1), never_better(2))
    before = loop.state()
    loop.epoch(), loop.epoch(), loop.epoch()
    loop.restore(before)
    loop.epoch()

    assert not loop.stop_training


def test_a_plateau_lowers_the_learning_rate_also_after_a_restore(replicas_of, tmp_path):
    def plateau():
        return callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=2, min_delta=1e6)

    loop = loop_with(replicas_of(1), plateau())
    rates = []
    for _ in range(5):
        loop.epoch()
        rates.append(rate_of(loop))
    loop.state().write(tmp_path)
    restored = loop_with(replicas_of(1), plateau())
    restored.restore(Checkpoint.read(tmp_path))
    rates.append(rate_of(restored))
    restored.epoch(), restored.epoch()
    rates.append(rate_of(restored))

    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125])


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_a_schedule_by_epoch_sets_the_learning_rate(num_replicas, replicas_of):
    schedule = callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (epoch + 1))
    loop = loop_with(replicas_of(num_replicas), schedule)
    rates = []
    for _ in range(3):
        loop.epoch()
        rates.append(rate_of(loop))

    assert rates == pytest.approx([0.1, 0.05, 0.1 / 3])


def test_callbacks_are_called_in_the_order_of_fit(replicas_of):
    calls = []

    class Noting(callbacks.Callback):
        def on_train_begin(self, logs=None):
            calls.append("train_begin")

        def on_epoch_begin(self, epoch, logs=None):
            calls.append(f"begin {epoch}")

        def on_epoch_end(self, epoch, logs=None):
            calls.append(f"end {epoch} {sorted(logs)}")

        def on_train_end(self, logs=None):
            calls.append("train_end")

    loop = loop_with(replicas_of(1), Noting())
    loop.epoch(), loop.epoch()
    loop.finish()

    assert calls == [
        "train_begin",
        "begin 0",
        "end 0 ['loss', 'val_loss']",
        "begin 1",
        "end 1 ['loss', 'val_loss']",
        "train_end",
    ]


@pytest.mark.parametrize(
    "hook", ["on_train_batch_end", "on_batch_begin", "on_test_batch_end", "on_predict_begin"]
)
def test_a_callback_for_batches_is_refused(hook, replicas_of):
    batchwise = type("Batchwise", (callbacks.Callback,), {hook: lambda self, *a, **k: None})

    with pytest.raises(WorkloadError, match=rf'Batchwise .*{hook}.*loop="fit"'):
        loop_with(replicas_of(1), batchwise())
