"""A reused program that gives other numbers than a fresh model is found out and dropped."""

import logging
import os

import keras
import pytest
import tensorflow as tf
from guards import guarded
from trials import Given, bits, draw, run, run_fresh

from tune_tf.errors import WorkloadError
from tune_tf.training.core.loop import GraphLoop
from tune_tf.training.reuse import reuse_check
from tune_tf.training.reuse.reuse_check import ReuseRecord

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("checked")]
layers = keras.layers
DATA = draw(45, 19)


def build(config):
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3)]
    )
    model.compile(
        keras.optimizers.AdamW(config.get("rate", 0.01), weight_decay=config.get("decay", 0.1)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class ByEnvironment(Given):
    """Reads a number where no fingerprint looks."""

    def build_model(self, config):
        os.environ["TESTED_SCALE"] = str(config.get("scale", 1))
        return super().build_model(config)

    def train_step(self, model, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
            loss = loss * float(os.environ["TESTED_SCALE"])
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


@pytest.fixture
def warn(monkeypatch):
    monkeypatch.setenv(reuse_check.SWITCH, "on")


@pytest.fixture
def num_checks(monkeypatch):
    """Return the reused programs that were compared, one entry a comparison."""
    found = []
    plain = reuse_check.differs_from_eager

    def counted(program, eager, inputs, **how):
        if eager is not program:
            found.append(program)
        return plain(program, eager, inputs, **how)

    monkeypatch.setattr(reuse_check, "differs_from_eager", counted)
    return found


@pytest.mark.parametrize("num_replicas", guarded([1, 2], [1]))
def test_a_hidden_value_is_found_and_its_trials_are_those_of_a_fresh_process(
    num_replicas, replicas_of, warn, caplog, monkeypatch
):
    monkeypatch.setenv("TESTED_SCALE", "1")
    workload, replicas = ByEnvironment(build, DATA), replicas_of(num_replicas)
    loop = GraphLoop(workload, replicas)
    with caplog.at_level(logging.WARNING, "tune_tf"):
        for scale in (1, 3, 1, 3):
            warm = bits(run(loop, workload, {"scale": scale}))

            assert warm == bits(run_fresh(workload, replicas, {"scale": scale}))
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "A traced program of ByEnvironment missed a change of scale"
    ]


def test_the_environment_can_ask_for_an_error(replicas_of, monkeypatch):
    monkeypatch.setenv(reuse_check.SWITCH, "raise")
    monkeypatch.setenv("TESTED_SCALE", "1")
    workload = ByEnvironment(build, DATA)
    loop = GraphLoop(workload, replicas_of(1))
    run(loop, workload, {"scale": 1})

    with pytest.raises(WorkloadError, match="missed a change of scale"):
        run(loop, workload, {"scale": 3})


def test_the_check_can_be_switched_off(replicas_of, monkeypatch, num_checks):
    monkeypatch.setenv(reuse_check.SWITCH, "off")
    workload = Given(build, DATA)
    loop = GraphLoop(workload, replicas_of(1))
    for decay in (0.1, 0.2):
        run(loop, workload, {"decay": decay})

    assert not num_checks


def test_a_program_is_checked_once_for_each_parameter_and_stays_exact(replicas_of, num_checks):
    workload = Given(build, DATA)
    loop = GraphLoop(workload, replicas_of(1))
    counts = []
    for config in (
        {"rate": 0.01, "decay": 0.1},
        {"rate": 0.01, "decay": 0.1},
        {"rate": 0.02, "decay": 0.1},
        {"rate": 0.03, "decay": 0.1},
        {"rate": 0.03, "decay": 0.2},
        {"rate": 0.04, "decay": 0.3},
    ):
        warm = bits(run(loop, workload, config))
        counts.append(len(num_checks))

        assert warm == bits(run_fresh(workload, replicas_of(1), config))
    assert counts == [0, 1, 2, 2, 3, 3]
    assert loop.num_programs == 1


def test_numbers_that_no_seed_tells_are_not_taken_for_another_value(replicas_of, warn, caplog):
    class Noisy(layers.Layer):
        def call(self, x, training=False):
            return x + tf.random.normal(tf.shape(x)) if training else x

    def noisy(config):
        model = keras.Sequential([keras.Input((6,)), Noisy(), layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    workload = Given(noisy, DATA)
    loop = GraphLoop(workload, replicas_of(1))
    with caplog.at_level(logging.WARNING, "tune_tf"):
        for _ in range(2):
            run(loop, workload)

    assert not caplog.records


def test_diverging_trials_are_not_taken_for_different_ones(replicas_of):
    workload = Given(build, DATA)
    loop = GraphLoop(workload, replicas_of(1))
    for rate in (0.01, float("inf"), 0.01):
        run(loop, workload, {"rate": rate})

    assert loop.num_programs == 1


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        pytest.param([{"a": 1}], [[]], id="first reuse"),
        pytest.param([{"a": 1}, {"a": 1}], [[], None], id="the same again"),
        pytest.param([{"a": 2}, {"a": 3}], [["a"], None], id="a parameter once"),
        pytest.param([{"a": 1, "b": 1}, {}], [["b"], ["a"]], id="keys that come and go"),
        pytest.param([{"a": True}, {"a": 1.0}], [["a"], None], id="types"),
    ],
)
def test_a_record_names_the_parameters_that_change_for_the_first_time(configs, expected):
    record = ReuseRecord({"a": 1})
    found = []
    for config in configs:
        parameters = record.unchecked(config)
        found.append(parameters)
        record.note(parameters or [])

    assert found == expected
