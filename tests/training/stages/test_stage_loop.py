"""A model that is cut into stages gives the numbers of one device, in every layout."""

import functools

import keras
import numpy as np
import pytest
from guards import guarded, slow
from trials import Given, begin, draw, furthest, furthest_values, run, run_fresh

from tune_tf.errors import WorkloadError
from tune_tf.training.input.per_example import graph_operations
from tune_tf.training.loop import GraphLoop

pytestmark = pytest.mark.tf

LAYOUTS = [(1, 3, 4), (2, 1, 4), (2, 3, 1), (2, 3, 4)]
"""Replicas, stages, pieces."""


def skipping(config):
    """Build a model whose stages take more than the last one's output, with penalties in each."""
    x = keras.Input((6,))
    first = keras.layers.Dense(16, activation="relu", kernel_regularizer="l2")(x)
    second = keras.layers.Dense(16, activity_regularizer="l2")(first)
    added = keras.layers.Add()([first, second]) * 2.0
    third = keras.layers.Dense(12, activation="relu")(added)
    joined = keras.layers.Concatenate()([third, first, x])
    model = keras.Model(x, keras.layers.Dense(3, activation="softmax")(joined))
    model.compile(
        keras.optimizers.Adam(config.get("learning_rate", 0.01), global_clipnorm=0.1),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


@pytest.fixture(scope="module")
def cut(loop_on_grid):
    """Return a function that runs a workload on so many replicas, stages and micro-batches."""
    return lambda workload, layout, **how: run(loop_on_grid(workload, *layout), workload, **how)


@pytest.fixture(scope="module")
def whole(replicas_of):
    """Return a function that runs a workload on one device, once."""
    return functools.cache(lambda workload: run_fresh(workload, replicas_of(1)))


SKIPPING = Given(skipping, draw(45, 19))


@pytest.mark.parametrize(
    "layout",
    guarded(LAYOUTS, [(2, 3, 4)]),
    ids=str,
)
def test_every_layout_gives_the_numbers_of_one_device(layout, cut, whole):
    assert furthest(cut(SKIPPING, layout), whole(SKIPPING)) <= 1e-5


def test_moving_means_are_those_of_all_replicas(cut, whole):
    workload, moving_mean = Given(still, draw(48)), slice(4, 5)

    by_grid, by_one = cut(workload, (2, 2, 1))[1], whole(workload)[1]
    assert furthest_values(by_grid[moving_mean], by_one[moving_mean]) <= 1e-6


def still(config, *, synchronized=False):
    """Build a model that normalises and does not learn."""
    norm = keras.layers.BatchNormalization(synchronized=synchronized)
    inner = [keras.layers.Dense(8), norm, keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *inner])
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    return model


def test_batch_normalization_over_all_replicas_is_refused(cut):
    workload = Given(lambda config: still(config, synchronized=True), draw(48))

    with pytest.raises(WorkloadError, match="synchronized=True cannot be kept equal over 2"):
        cut(workload, (2, 1, 1))


def test_variables_and_slots_are_on_the_device_of_their_stage(loop_on_grid):
    loop = begin(loop_on_grid(SKIPPING, 1, 3, 2), SKIPPING)
    model = loop.trial.program.model

    places = {v.path: int(v.value.device[-1]) for v in model.trainable_variables}
    assert list(places.values()) == sorted(places.values())
    assert set(places.values()) == {0, 1, 2}
    of_slots = {
        v.path: int(v.value.device[-1])
        for v in model.optimizer.variables
        if v.path.endswith(("momentum", "velocity"))
    }
    wanted = {
        f"adam/{path.replace('/', '_')}_{slot}": place
        for path, place in places.items()
        for slot in ("momentum", "velocity")
    }
    assert of_slots == wanted


def test_products_forwards_and_backwards_are_computed_on_their_stage(loop_on_grid):
    loop = begin(loop_on_grid(SKIPPING, 2, 3, 2), SKIPPING)
    loop.epoch()
    (traced,) = loop.trial.program.graph._functions.values()
    graph = traced.function.graph

    devices = [node.device for node in graph_operations(graph) if node.op in ("MatMul", "Sqrt")]
    assert len(devices) > 50
    places = {device.rsplit(":", 1)[-1] for device in devices}
    assert places <= {"0", "1", "2", "3", "4", "5", ""}
    products = {n.device.rsplit(":", 1)[-1] for n in graph_operations(graph) if n.op == "MatMul"}
    assert products == {"0", "1", "2", "3", "4", "5"}


@pytest.mark.parametrize(
    ("first", "second"), [((1, 3, 2), None), slow((2, 3, 1), (1, 2, 4))], ids=str
)
def test_a_trial_goes_on_in_another_layout_or_uncut(
    first, second, loop_on_grid, replicas_of, whole
):
    history, values = whole(SKIPPING)
    loop = begin(loop_on_grid(SKIPPING, *first), SKIPPING)
    begun = [loop.epoch()]

    other = loop_on_grid(SKIPPING, *second) if second else GraphLoop(replicas_of(1))
    begin(other, SKIPPING)
    other.restore(loop.state())
    begun += [other.epoch(), other.epoch()]

    model = other.trial.program.model
    arrays = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    assert furthest((begun, arrays), (history, values)) <= 1e-5


def test_the_user_says_where_layers_go(loop_on_grid, whole):
    class Placed(Given):
        def stage_of(self, layer):
            return 1 if layer.name == "dense_1" else None

    workload = Placed(skipping, draw(45, 19))
    loop = loop_on_grid(workload, 1, 2, 1)
    outcome = run(loop, workload)

    assert furthest(outcome, whole(SKIPPING)) <= 1e-5
    begin(loop, workload)
    places = [v.value.device[-1] for v in loop.trial.program.model.trainable_variables]
    assert places == ["0"] * 2 + ["1"] * 6


def test_replicas_do_not_drop_the_same_units(loop_on_grid):
    workload = Given(
        lambda config: _dropping(), type(draw(8))(train=(np.ones((8, 6), "f"), np.zeros(8, "f")))
    )
    loop = begin(loop_on_grid(workload, 2, 1, 1), workload)
    loop.epoch()

    seeds = [
        [v.numpy().tolist() for v in copy.non_trainable_variables if "seed" in v.name]
        for copy in loop.trial.program.step.copies
    ]
    assert seeds[0] != seeds[1]


def _dropping():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
