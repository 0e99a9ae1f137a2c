"""Training that does not wait for validation reports the same numbers."""

import math
from typing import ClassVar

import keras
import numpy as np
import pytest
from exactness_cases import CASES, mlp
from trials import Given, GraphLoop, begin, draw, furthest, furthest_values, run, run_fresh

from tune_tf.errors import WorkloadError
from tune_tf.training.core.async_validation import AsyncValidationLoop, Validator
from tune_tf.training.core.checkpoint import Checkpoint

pytestmark = pytest.mark.tf

DATA = draw(45, 19)


def regularised(config):
    """Build a model whose loss has a penalty, and whose dropout differs in training only."""
    rate = config.get("learning_rate", 0.1)
    return mlp(
        lambda: keras.layers.Dropout(0.3),
        keras.layers.BatchNormalization,
        optimizer=lambda: keras.optimizers.SGD(rate, momentum=0.9),
        regularizer=lambda: keras.regularizers.L2(0.01),
        metrics=lambda: ["accuracy"],
    )(config)


PLAIN = Given(regularised, DATA)


@pytest.fixture
def ahead(replicas_of):
    """Return a function that makes a loop which runs ahead, on so many replicas."""

    class Driven(AsyncValidationLoop):
        """Shows what the tests look at in a loop."""

        trial = property(lambda self: self._inner.trial)
        _replicas = property(lambda self: self._inner._replicas)
        validation = property(lambda self: self._validator._cached)

    return lambda workload, num=1, **settings: Driven(
        GraphLoop(workload, replicas_of(num)), Validator(workload, replicas_of(num), **settings)
    )


@pytest.mark.parametrize(
    ("workload", "num_replicas"),
    [
        pytest.param(PLAIN, 1, id="one"),
        pytest.param(
            CASES["synchronized batch normalization"].workload,
            2,
            id="two replicas",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_each_epoch_reports_the_numbers_of_validation_that_is_waited_for(
    ahead, replicas_of, workload, num_replicas
):
    loop = begin(ahead(workload, num_replicas), workload)
    history = [loop.epoch() for _ in range(4)]
    loop.finish()

    waiting, _ = run_fresh(workload, replicas_of(num_replicas), epochs=4)
    assert furthest((history, [0]), (waiting, [0])) <= (0 if num_replicas == 1 else 1e-6)


class Watching(keras.layers.Layer):
    """Keeps the graph in which it was traced last, and its weight."""

    graphs: ClassVar = []

    def build(self, shape):
        self.add_weight(shape=(), name="weight")

    def call(self, x):
        import tensorflow as tf

        if not isinstance(x, keras.KerasTensor):
            self.graphs.append(tf.compat.v1.get_default_graph())
        return x + self.weights[0]


PLACED_BY_INPUT = ("Placeholder", "ReadVariableOp", "Const", "Identity", "NoOp")


def devices_of(graph):
    """Return the devices of a graph's operations that compute, and of the graph around its loop."""
    import tensorflow as tf

    devices = set()
    while graph is not None:
        devices |= {
            tf.DeviceSpec.from_string(operation.device).to_string()
            for operation in graph.get_operations()
            if operation.type not in PLACED_BY_INPUT
        }
        graph = getattr(graph, "outer_graph", None)
        graph = graph if hasattr(graph, "inputs") else None  # else what is eager
    return devices


@pytest.mark.parametrize("num_replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_weights_and_graph_are_on_the_device_that_it_is_given(
    ahead, replicas_of, num_replicas
):
    workload = Given(mlp(lambda: keras.layers.Dropout(0.3), Watching), DATA)
    loop = begin(ahead(workload, num_replicas, device="CPU:4"), workload)
    history = [loop.epoch() for _ in range(3)]
    loop.finish()

    waiting, _ = run_fresh(workload, replicas_of(num_replicas))
    assert furthest((history, [0]), (waiting, [0])) <= (0 if num_replicas == 1 else 1e-6)
    program, rows = loop.validation.program, loop.validation.inputs.rows.validation
    placed = [*keras.tree.flatten(rows), *(each.value for each in program.model.variables)]
    assert {each.device[-5:] for each in placed} == {"CPU:4"}
    program.retrace()
    program.validate(rows)
    assert {name[-5:] for name in devices_of(Watching.graphs[-1])} == {"CPU:4"}


def test_the_next_trial_in_a_process_costs_no_trace_and_is_as_in_a_fresh_one(ahead, replicas_of):
    loop = begin(ahead(PLAIN), PLAIN, {"learning_rate": 0.3}, seed=1)
    loop.epoch()
    loop.finish()

    begin(loop, PLAIN, {"learning_rate": 0.02}, seed=2)
    history = [loop.epoch() for _ in range(2)]
    loop.finish()

    fresh, _ = run_fresh(PLAIN, replicas_of(1), {"learning_rate": 0.02}, seed=2, epochs=2)
    assert furthest((history, [0]), (fresh, [0])) == 0
    assert loop.num_programs == 2  # one trains, one validates


def test_a_checkpoint_holds_the_epoch_that_was_reported(ahead, replicas_of, tmp_path):
    loop = begin(ahead(PLAIN), PLAIN)
    loop.epoch()
    loop.state().write(tmp_path)
    loop.finish()

    saved = Checkpoint.read(tmp_path)
    assert saved.epoch == 1
    waiting = begin(GraphLoop(PLAIN, replicas_of(1)), PLAIN)
    waiting.restore(saved)
    history, _ = run_fresh(PLAIN, replicas_of(1))
    assert furthest(([waiting.epoch(), waiting.epoch()], [0]), (history[1:], [0])) == 0


def steered(config):
    """Return callbacks that steer by what was validated."""
    return [keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=0, min_delta=10)]


@pytest.mark.slow
def test_a_restored_trial_goes_on_as_if_it_had_not_stopped(ahead, replicas_of):
    workload = Given(regularised, DATA, callbacks=steered)
    loop = begin(ahead(workload), workload)
    history = [loop.epoch() for _ in range(2)]
    saved = loop.state()
    history += [loop.epoch() for _ in range(3)]
    loop.finish()

    other = begin(ahead(workload), workload)
    other.restore(saved)
    resumed = [other.epoch() for _ in range(3)]
    other.finish()

    assert furthest((resumed, [0]), (history[2:], [0])) == 0
    left_alone, _ = run_fresh(PLAIN, replicas_of(1), epochs=5)
    losses = [[each["val_loss"] for each in run] for run in (resumed, left_alone[2:])]
    assert losses[0] != losses[1]


def test_callbacks_hear_of_each_epoch_once_and_in_order_and_one_later(ahead):
    heard = []

    class Listener(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            heard.append((epoch, "val_loss" in logs))

    workload = Given(regularised, DATA, callbacks=lambda config: [Listener()])
    loop = begin(ahead(workload), workload)
    after = []
    for _ in range(3):
        loop.epoch()
        after.append(len(heard))
    loop.finish()

    assert after == [0, 1, 2]
    assert heard == [(0, True), (1, True), (2, True)]


def test_what_callbacks_add_to_the_logs_is_reported_one_epoch_later(ahead):
    class Adding(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["added"] = np.float32(epoch)

    workload = Given(regularised, DATA, callbacks=lambda config: [Adding()])
    loop = begin(ahead(workload), workload)
    reported = [loop.epoch(), loop.epoch()]
    saved = loop.state()
    reported.append(loop.epoch())
    loop.finish()
    begin(loop, workload)
    loop.restore(saved)
    reported.append(loop.epoch())
    loop.finish()

    assert [each.get("added") for each in reported] == [None, 0.0, 1.0, 1.0]
    assert "added" not in saved.pending_metrics


@pytest.mark.slow
def test_an_early_stopped_trial_ends_with_its_best_weights(ahead, replicas_of):
    def stopping(config):
        return [
            keras.callbacks.EarlyStopping(
                "val_loss", patience=1, min_delta=100, restore_best_weights=True
            )
        ]

    workload = Given(regularised, DATA, callbacks=stopping)
    loop = begin(ahead(workload), workload)
    loop.epoch(), loop.epoch(), loop.epoch()

    ended = loop.state()
    iterations = int(loop.trial.program.model.optimizer.iterations.numpy())
    loop.finish()
    waiting = begin(GraphLoop(PLAIN, replicas_of(1)), PLAIN)
    waiting.epoch()
    best = waiting.state()

    assert (ended.epoch, ended.has_ended, iterations) == (3, True, 3 * 6)
    assert furthest_values(weights_of(ended), weights_of(best)) == 0


def weights_of(checkpoint):
    return [
        value
        for name, value in zip(checkpoint.names, checkpoint.model, strict=False)
        if name.role in ("kernel", "bias", "gamma", "beta")
    ]


def test_a_callback_that_changes_the_model_for_validation_is_refused(ahead):
    workload = Given(regularised, DATA, callbacks=lambda config: [keras.callbacks.SwapEMAWeights()])

    with pytest.raises(WorkloadError, match=r"on_test_begin.*validation\.asynchronous.*leave one"):
        begin(ahead(workload), workload)


def test_an_early_stop_comes_one_epoch_later(ahead):
    def stopping(config):
        return [keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=100)]

    workload = Given(regularised, DATA, callbacks=stopping)
    loop = begin(ahead(workload), workload)
    stops = []
    for _ in range(3):
        loop.epoch()
        stops.append(loop.stop_training)
    loop.finish()

    assert stops == [False, False, True]


class TakesTheLogarithm(keras.losses.Loss):
    """A loss that reads a carried scalar behind its back."""

    def __init__(self, layer):
        super().__init__()
        self._layer = layer

    def call(self, y_true, y_pred):
        return keras.ops.mean(y_pred**2) * math.sqrt(self._layer.rate)


def test_a_scalar_that_cannot_be_carried_is_none_of_its_numbers(ahead, replicas_of):
    def build(config):
        dropout = keras.layers.Dropout(0.3)
        model = keras.Sequential([keras.Input((6,)), dropout, keras.layers.Dense(3)])
        model.compile("sgd", TakesTheLogarithm(dropout))
        return model

    workload = Given(build, DATA, structure=lambda config: "the same")
    loop = begin(ahead(workload), workload)
    history = [loop.epoch() for _ in range(2)]
    loop.finish()

    waiting, _ = run(GraphLoop(workload, replicas_of(1)), workload, epochs=2)
    assert math.isfinite(history[0]["val_loss"])
    assert furthest((history, [0]), (waiting, [0])) == 0


def test_a_workload_without_validation_rows_is_refused(ahead):
    workload = Given(regularised, draw(16))

    with pytest.raises(WorkloadError, match="load_data returned no validation rows"):
        begin(ahead(workload), workload)


@pytest.mark.slow
def test_what_is_computed_of_single_rows_is_validated_alike(ahead, replicas_of):
    class Noisy(Given):
        def per_example(self, config, *, training):
            import tensorflow as tf

            def noisy(example, seed):
                x, y = example
                return x + tf.random.stateless_normal(tf.shape(x), seed), y

            return noisy

    workload = Noisy(regularised, DATA)
    loop = begin(ahead(workload), workload)
    history = [loop.epoch() for _ in range(3)]
    loop.finish()

    waiting, _ = run_fresh(workload, replicas_of(1))
    assert furthest((history, [0]), (waiting, [0])) == 0
