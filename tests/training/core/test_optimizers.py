"""Every optimizer of Keras trains, however a trial is spread, or is refused by name."""

import inspect

import keras
import numpy as np
import pytest
from guards import guarded
from trials import (
    Given,
    GraphLoop,
    begin,
    bits,
    draw,
    furthest,
    run,
    run_fresh,
    run_keras_fit,
)

from tune_tf.errors import WorkloadError
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


CASES = {
    name: (lambda config, kind=kind: kind())
    for name, kind in vars(optimizers).items()
    if inspect.isclass(kind)
    and issubclass(kind, optimizers.Optimizer)
    and name not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")
} | {
    "LossScaleOptimizer": lambda config: optimizers.LossScaleOptimizer(optimizers.Adam()),
    "MultiOptimizer by map": by_map,
    "MultiOptimizer by function": by_function,
    "MultiOptimizer in LossScaleOptimizer": lambda config: optimizers.LossScaleOptimizer(
        by_map(config)
    ),
}
SEVERAL = [name for name in CASES if "Multi" in name]
BY_MAP = [name for name in SEVERAL if "function" not in name]
GUARD = "MultiOptimizer by map"


def given(make):
    """Return a workload whose optimizer is made by a function of the config."""

    def build(config):
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(3)])
        model.compile(make(config), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    return Given(build, draw(20, 8))


@pytest.mark.parametrize("name", guarded(CASES, [GUARD]))
def test_an_epoch_is_that_of_fit(name, replicas_of):
    workload = given(CASES[name])

    found = run_fresh(workload, replicas_of(1), epochs=2)
    assert furthest(found, run_keras_fit(workload, replicas_of(1), epochs=2)) <= 1e-6


@pytest.mark.parametrize(
    "name", guarded([name for name in SEVERAL if "Scale" not in name], [GUARD])
)
def test_several_optimizers_are_exact_on_two_replicas(name, replicas_of):
    workload = given(CASES[name])

    one, two = (run_fresh(workload, replicas_of(num), epochs=2) for num in (1, 2))
    assert furthest(two, one) <= 1e-6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda config: by_map({"clipnorm": 0.1}), r"MultiOptimizer with clipnorm=0\.1"),
        (CASES["MultiOptimizer in LossScaleOptimizer"], "MultiOptimizer with LossScaleOptimizer"),
    ],
    ids=["clipping", "loss scale"],
)
def test_several_optimizers_that_two_replicas_cannot_serve_are_refused(make, message, replicas_of):
    with pytest.raises(WorkloadError, match=f"{message} cannot be kept exact over 2.*use one"):
        begin(GraphLoop(replicas_of(2)), given(make))


@pytest.mark.parametrize("name", guarded(BY_MAP, [GUARD]))
def test_stages_train_with_several_optimizers(name, replicas_of, loop_on_grid):
    workload = given(CASES[name])

    one = run_fresh(workload, replicas_of(1), epochs=1)
    assert furthest(run(loop_on_grid(workload, 1, 2, 1), workload, epochs=1), one) <= 1e-6


@pytest.mark.parametrize("name", guarded(BY_MAP, [GUARD]))
def test_a_parameter_server_trains_with_several_optimizers(name, replicas_of):
    workload = given(CASES[name])
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


@pytest.mark.parametrize("name", guarded(BY_MAP, [GUARD]))
def test_a_reused_process_trains_with_the_rates_of_its_config(name, replicas_of):
    workload = given(CASES[name])
    loop = GraphLoop(replicas_of(1))
    run(loop, workload, {"rate": 0.3, "momentum": 0.5}, seed=1, epochs=1)
    config = {"rate": 0.02, "momentum": 0.7}

    again = run(loop, workload, config, seed=2, epochs=2)
    assert bits(again) == bits(run_fresh(workload, replicas_of(1), config, seed=2, epochs=2))


@pytest.mark.parametrize("name", guarded(SEVERAL, [GUARD]))
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
