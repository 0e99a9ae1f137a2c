"""Gradients of one loop that another one applies: the numbers are those of one device."""

import keras
import numpy as np
import pytest
from guards import slow
from trials import ByTape, Given, begin, draw, run

from tune_tf.data import rows_of
from tune_tf.errors import WorkloadError
from tune_tf.parallelism import Mirrored
from tune_tf.training.input.device_rows import place_rows
from tune_tf.training.loop import GraphLoop
from tune_tf.training.parameter_server.gradient_loop import GradientLoop
from tune_tf.training.parameter_server.tasks import Task
from tune_tf.training.parameter_server.update_loop import UpdateLoop

pytestmark = pytest.mark.tf

EPOCHS = 2


def compiled(layers, optimizer, metrics=("accuracy",)):
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=list(metrics))
    return model


def dense(config):
    """Everything that moves by itself: statistics, masks, penalties, a schedule and clipping."""
    rate = keras.optimizers.schedules.ExponentialDecay(config.get("rate", 0.05), 3, 0.9)
    return compiled(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, "relu", kernel_regularizer=keras.regularizers.L2(1e-2)),
            keras.layers.BatchNormalization(momentum=0.7),
            keras.layers.Dropout(config.get("dropout", 0.3)),
            keras.layers.Dense(3),
        ],
        keras.optimizers.SGD(rate, momentum=0.9, global_clipnorm=0.3),
    )


def embedded(config):
    """Sparse gradients."""
    return compiled(
        [
            keras.Input((6,)),
            keras.layers.Embedding(50, 4),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ],
        keras.optimizers.Adam(0.01),
    )


def accumulating(config):
    """An optimizer that counts batches, and overwrites the weights by their averages."""
    optimizer = keras.optimizers.Adam(
        0.01, gradient_accumulation_steps=2, use_ema=True, ema_overwrite_frequency=3
    )
    return compiled([keras.Input((6,)), keras.layers.Dense(3)], optimizer)


def scaled(config):
    """A loss that is scaled."""
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=2.0**10, dynamic_growth_steps=4
    )
    return compiled([keras.Input((6,)), keras.layers.Dense(3)], optimizer)


def several(config):
    """Two optimizers."""
    rules = {".*bias": keras.optimizers.SGD(0.1, momentum=0.9)}
    by_map = keras.optimizers.OptimizerMap(keras.optimizers.Adam(0.01, clipnorm=0.1), rules)
    layers = [keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(3)]
    return compiled(layers, keras.optimizers.MultiOptimizer(by_map))


def frozen(config):
    """A layer that stays as it is."""
    layers = [keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
    layers[1].trainable = False
    return compiled(layers, keras.optimizers.SGD(0.1))


def of_words():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 50, (40, 6)).astype("int32")
    return type(draw(1))(train=(x[:30], x[:30, 0] % 3), validation=(x[30:], x[30:, 0] % 3))


def start(workload, replicas, config, server, worker):
    rows = place_rows(rows_of(workload.load_data(config)), replicas)
    server.start(workload, config, rows, 5)
    worker.start(workload, config, rows, 5)


def run_apart(workload, replicas, config, server=None, worker=None):
    """Run a trial in a server's loop and a worker's; return metrics by epoch and all variables."""
    server = server or UpdateLoop(replicas, Mirrored())
    worker = worker or GradientLoop(replicas, Mirrored())
    start(workload, replicas, config, server, worker)
    history, version = [], 0

    def weights():
        program = server.program
        return version, program.values(None if worker.version is None else program.roles.live)

    for _ in range(EPOCHS):
        server.open_epoch()
        for batch in range(server.program.num_batches):
            rows = server.rows_of(batch)
            outcome = worker.do(Task(batch, rows, *weights(), server.program.loss_scale))
            server.program.apply(outcome.gradient)
            version += 1
        validation = worker.validate(*weights())
        history.append(server.close_epoch(outcome.counters, validation))
    state = server.state()
    server.finish()
    worker.finish()
    return history, [*state.model, *state.optimizer]


@pytest.mark.parametrize(
    ("kind", "build", "data"),
    [
        pytest.param(Given, dense, draw(29, 9), id="statistics-masks-clipping"),
        pytest.param(ByTape, dense, draw(29, 9), id="own-step"),
        pytest.param(Given, embedded, of_words(), id="sparse"),
        slow(Given, accumulating, draw(29, 9), id="accumulating-and-averaging"),
        slow(Given, scaled, draw(29, 9), id="scaled-loss"),
        slow(Given, frozen, draw(29, 9), id="frozen-layer"),
        pytest.param(Given, several, draw(20, 8), id="several-optimizers"),
        slow(Given, dense, draw(29, 9, weights=True), id="sample-weights"),
    ],
)
def test_gradients_applied_elsewhere_give_the_numbers_of_one_device(kind, build, data, replicas_of):
    workload = kind(build, data)
    history, values = run(GraphLoop(replicas_of(1)), workload, seed=5, epochs=EPOCHS)
    seen, applied = run_apart(workload, replicas_of(1), {})

    assert [each.keys() for each in seen] == [each.keys() for each in history]
    for epoch, expected in zip(seen, history, strict=True):
        np.testing.assert_allclose(list(epoch.values()), list(expected.values()), rtol=1e-6)
    for value, expected in zip(applied, values, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)


def test_another_trial_of_the_same_loops_has_the_numbers_of_fresh_ones(replicas_of):
    workload = Given(dense, draw(29, 9))
    arguments = replicas_of(1), Mirrored()
    loops = UpdateLoop(*arguments), GradientLoop(*arguments)
    run_apart(workload, replicas_of(1), {}, *loops)
    other = {"rate": 0.01, "dropout": 0.1}
    warm = run_apart(workload, replicas_of(1), other, *loops)
    fresh = run_apart(workload, replicas_of(1), other)

    assert warm[0] == fresh[0]


class Stepping(Given):
    """A workload whose training step is given.

    Args:
        step: Takes the model and a batch.
    """

    def __init__(self, step):
        super().__init__(frozen, draw(16))
        self._step = step

    def train_step(self, model, batch):
        return self._step(model, batch)


def never(model, batch):
    return {"loss": model.compute_loss(*batch, model(batch[0]))}


def twice(model, batch):
    for _ in range(2):
        model.train_step(batch)
    return model.get_metrics_result()


def without_a_loss(model, batch):
    model.train_step(batch)
    return {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        pytest.param(never, r"never calls model\.optimizer\.apply", id="never"),
        pytest.param(twice, "more than once per batch", id="twice"),
        pytest.param(without_a_loss, "returned accuracy but no loss", id="no-loss"),
    ],
)
def test_a_step_whose_gradients_cannot_be_caught_is_refused(step, message, replicas_of):
    workload = Stepping(step)
    with pytest.raises(WorkloadError, match=message):
        begin(GradientLoop(replicas_of(1), Mirrored()), workload)
