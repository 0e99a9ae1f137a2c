"""A MultiOptimizer trains on stages and on a parameter server, and keeps new rates.

The contract has all other optimizers, and the refusals.
"""

import keras
import numpy as np
import pytest
from trials import (
    Given,
    GraphLoop,
    begin,
    draw,
    furthest,
    run,
    run_fresh,
)

from tune_tf.parallelism import Mirrored
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.parameter_server.gradient_loop import GradientLoop
from tune_tf.training.parameter_server.tasks import Task
from tune_tf.training.parameter_server.update_loop import UpdateLoop

pytestmark = pytest.mark.tf
optimizers = keras.optimizers


def by_map(config):
    """Return Adam, and SGD for the biases."""
    rate = config.get("rate", 0.1)
    return optimizers.MultiOptimizer(
        optimizers.OptimizerMap(
            optimizers.Adam(0.01, clipnorm=config.get("clipnorm")),
            {".*bias": optimizers.SGD(rate, momentum=config.get("momentum", 0.9))},
        )
    )


def by_function(config):
    """Return a MultiOptimizer that makes its optimizers when it is asked."""
    made = {}

    def of(variable):
        name = variable.name
        if name not in made:
            made[name] = optimizers.SGD(config.get("rate", 0.1) / (1 + len(made)))
        return made[name]

    return optimizers.MultiOptimizer(of)


CASES = {"MultiOptimizer by map": by_map, "MultiOptimizer by function": by_function}


def given(make):
    """Return a workload whose optimizer is made by a function of the config."""

    def build(config):
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(3)])
        model.compile(make(config), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    return Given(build, draw(20, 8))


def test_stages_train_with_several_optimizers(replicas_of, loop_on_grid):
    workload = given(by_map)

    one = run_fresh(workload, replicas_of(1), epochs=1)
    assert furthest(run(loop_on_grid(workload, 1, 2, 1), workload, epochs=1), one) <= 1e-6


def test_a_parameter_server_trains_with_several_optimizers(replicas_of):
    workload = given(by_map)
    server = begin(UpdateLoop(replicas_of(1), Mirrored()), workload)
    worker = begin(GradientLoop(replicas_of(1), Mirrored()), workload)
    server.open_epoch()
    program = server.program

    for batch in range(program.num_batches):
        rows, values = server.rows_of(batch), program.values()
        result = worker.do(Task(batch, rows, batch, values, program.loss_scale))
        server.program.apply(result.gradient)
    validation = worker.validate(program.num_batches, program.values())
    metrics = server.close_epoch([], validation)
    values = [v.numpy() for v in (*program.model.variables, *program.model.optimizer.variables)]

    one = run_fresh(workload, replicas_of(1), epochs=1)
    assert furthest(([metrics], values), one) <= 1e-6


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_of_several_optimizers_goes_on_and_new_rates_win(name, replicas_of, tmp_path):
    workload = given(CASES[name])
    loop = begin(GraphLoop(replicas_of(1)), workload)
    loop.epoch()
    loop.state().write(tmp_path)
    following = loop.epoch()
    begin(loop, workload)
    loop.restore(Checkpoint.read(tmp_path))
    again = loop.epoch()
    begin(loop, workload, {"rate": 0.02})
    loop.restore(Checkpoint.read(tmp_path))

    assert again == following
    rates = [
        v.numpy() for v in loop.trial.program.model.optimizer.variables if v.name == "learning_rate"
    ]
    assert np.float32(0.02) in rates
    assert loop.epoch() != following
