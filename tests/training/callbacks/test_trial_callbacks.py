"""Keras callbacks around epochs that are one graph call."""

import json

import keras
import pytest
from trials import Given, begin, dense_model, draw, loop_with

from tune_tf.data import rows_of
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.parameter_server.update_loop import UpdateLoop

pytestmark = pytest.mark.tf
callbacks = keras.callbacks


def never_better(patience):
    """An early stopping that takes no epoch for an improvement but the first."""
    return callbacks.EarlyStopping("loss", min_delta=1e6, patience=patience)


def test_the_next_trial_is_not_stopped(replicas_of):
    loop = loop_with(replicas_of(1), never_better(1))
    loop.epoch(), loop.epoch()
    workload = loop.trial.workload
    loop.finish()
    begin(loop, workload)

    assert not loop.stop_training


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


def test_callbacks_that_do_not_watch_validation_cost_no_call_of_their_own(replicas_of, monkeypatch):
    loop = loop_with(replicas_of(1), never_better(9), callbacks.CSVLogger("/dev/null"))
    program = loop.trial.program
    monkeypatch.setattr(program, "validate", None)

    assert loop.epoch().keys() == {"loss", "val_loss"}


class Reading(callbacks.Callback):
    """Reads what a callback may read of a model between epochs, and copies and writes it."""

    def __init__(self, seen, folder):
        super().__init__()
        self._seen = seen
        self._folder = folder

    def on_epoch_end(self, epoch, logs=None):
        model, optimizer = self.model, self.model.optimizer
        names = ("weight_decay", "beta_1", "epsilon", "clipnorm")
        numbers = [getattr(optimizer, name) for name in names]
        numbers += [model.layers[1].rate, model.layers[0].kernel_regularizer.l2]
        copied = keras.models.clone_model(model)
        model.save(self._folder / "model.keras")
        loaded = keras.models.load_model(self._folder / "model.keras")
        self._seen.append(
            [type(number) is float for number in numbers]
            + [
                numbers,
                [float(number) for number in numbers],
                copied.layers[1].get_config()["rate"],
                json.loads(model.to_json())["config"]["layers"][2]["config"]["rate"],
                model.get_config()["layers"][2]["config"]["rate"],
                optimizer.get_config()["weight_decay"],
                loaded.optimizer.beta_1,
            ]
        )


def carrying(config):
    """Build a model whose numbers a program carries."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(config["l2"])),
            keras.layers.Dropout(config["rate"]),
        ]
    )
    optimizer = keras.optimizers.AdamW(
        0.01, weight_decay=config["decay"], beta_1=config["beta"], clipnorm=config["clip"]
    )
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize("num_replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_callback_reads_copies_and_writes_the_numbers_of_its_own_trial(
    num_replicas, replicas_of, tmp_path
):
    seen = []
    workload = Given(carrying, draw(20, 8), callbacks=lambda config: [Reading(seen, tmp_path)])
    loop = GraphLoop(replicas_of(num_replicas))
    configs = [
        {"l2": 0.01, "rate": 0.25, "decay": 0.125, "beta": 0.75, "clip": 0.5},
        {"l2": 0.02, "rate": 0.5, "decay": 0.0625, "beta": 0.875, "clip": 0.25},
    ]
    for config in configs:
        begin(loop, workload, config)
        loop.epoch()
        loop.finish()

    for config, (*are_floats, numbers, _, cloned, text, given, decay, beta) in zip(
        configs, seen, strict=True
    ):
        assert all(are_floats)
        clip = config["clip"] / num_replicas  # gradients are clipped before Keras' sum
        assert numbers == [
            config["decay"],
            config["beta"],
            1e-7,
            clip,
            config["rate"],
            config["l2"],
        ]
        assert cloned == text == given == config["rate"]
        assert (decay, beta) == (config["decay"], config["beta"])
    assert loop.num_programs == 1


def test_a_server_whose_workers_validate_refuses_callbacks_around_validation(replicas_of):
    data = draw(20, 8)
    workload = Given(dense_model, data, callbacks=lambda config: [callbacks.SwapEMAWeights()])
    loop = UpdateLoop(replicas_of(1), Mirrored())

    with pytest.raises(WorkloadError, match=r"on_test_begin.*workers of a parameter server"):
        loop.start(workload, {}, place_rows(rows_of(data), None), 1)
