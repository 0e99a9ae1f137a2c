"""A model that is cut into stages gives the numbers of one device, in every layout."""

import functools
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from exactness_cases import CASES
from guards import guarded, slow
from trials import Given, begin, draw, furthest, furthest_values, run, run_fresh

from tune_tf.errors import WorkloadError
from tune_tf.training.input.per_example import graph_operations

pytestmark = pytest.mark.tf

REFUSED = ("own train_step", "train_step of", "synchronized", "weights made at the first call")
OF_ONE_VARIABLE = (
    "SGD with momentum, even",
    "SGD with momentum, one row over",
    "AdamW",
    "RMSprop",
    "clipnorm",
    "clipvalue",
    "exponential decay",
    "sparse gradients",
    "sparse gradients, Adam, accumulated",
    "batch of all rows",
    "list of inputs",
)
"""The step of a variable, as under "Adam", or what another case has in it."""
CUT = [
    name
    for name, case in CASES.items()
    if case.replicas and not name.startswith(REFUSED) and name not in OF_ONE_VARIABLE
]
GUARD = [
    "two inputs, two outputs, uneven",
    "sparse gradients, Adam, clipnorm",
]
LAYOUTS = [(1, 1, 3), (1, 2, 1), (1, 3, 4), (2, 1, 4), (2, 2, 3), (2, 3, 1), (2, 3, 4)]
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


def early_output(config):
    """Build a model with an output of its first stage and one of its last."""
    x = keras.Input((6,))
    first = keras.layers.Dense(8, activation="relu")(x)
    early = keras.layers.Dense(3, activation="softmax", name="early")(first)
    deep = keras.layers.Dense(32, activation="relu")(first)
    late = keras.layers.Dense(3, activation="softmax", name="late")(deep)
    model = keras.Model(x, {"early": early, "late": late})
    model.compile("adam", {"early": "sparse_categorical_crossentropy"} | {"late": "mse"})
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


@pytest.mark.parametrize("name", guarded(CUT, GUARD))
def test_each_feature_gives_the_numbers_of_one_device(name, cut, whole):
    workload = CASES[name].workload
    layout = (2, 1, 2) if name == "metrics that are no means" else (2, 2, 2)  # has one layer

    assert furthest(cut(workload, layout), whole(workload)) <= CASES[name].replicas


@pytest.mark.slow
def test_an_output_of_an_early_stage_is_trained_too(cut, whole):
    data = draw(45, 19)
    y = {"early": data.train[1], "late": keras.utils.to_categorical(data.train[1])}
    workload = Given(early_output, type(data)(train=(data.train[0], y)))

    assert furthest(cut(workload, (1, 3, 2)), whole(workload)) <= 1e-5


def test_moving_means_are_those_of_all_replicas(cut, whole):
    workload, moving_mean = Given(still, draw(48)), slice(4, 5)

    by_grid, by_one = cut(workload, (2, 2, 1))[1], whole(workload)[1]
    assert furthest_values(by_grid[moving_mean], by_one[moving_mean]) <= 1e-6


def still(config):
    """Build a model that normalises and does not learn."""
    inner = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *inner])
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    return model


def test_batch_normalization_over_all_replicas_is_refused(cut):
    workload = CASES["synchronized batch normalization"].workload

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


def test_the_numbers_do_not_depend_on_the_models_built_before(loop_on_grid):
    def train():
        return run(loop_on_grid(SKIPPING, 1, 2, 2), SKIPPING)

    with ThreadPoolExecutor(max_workers=1) as thread:  # Keras counts automatic names by thread
        first, second = (thread.submit(train).result() for _ in range(2))

    assert furthest(first, second) == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [((1, 3, 2), (1, 1, 1)), slow((2, 3, 1), (1, 2, 4))],
    ids=str,
)
def test_a_trial_goes_on_in_another_layout(first, second, loop_on_grid, whole):
    history, values = whole(SKIPPING)
    loop = begin(loop_on_grid(SKIPPING, *first), SKIPPING)
    begun = [loop.epoch()]

    other = begin(loop_on_grid(SKIPPING, *second), SKIPPING)
    other.restore(loop.state())
    begun += [other.epoch(), other.epoch()]

    model = other.trial.program.model
    arrays = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    assert furthest((begun, arrays), (history, values)) <= 1e-5


@pytest.mark.slow
def test_a_checkpoint_goes_into_the_uncut_model_and_back(loop_on_grid, replicas_of, whole):
    from trials import GraphLoop

    loop = begin(loop_on_grid(SKIPPING, 2, 3, 2), SKIPPING)
    begun = [loop.epoch()]
    uncut = begin(GraphLoop(replicas_of(1)), SKIPPING)
    uncut.restore(loop.state())
    begun.append(uncut.epoch())
    loop.restore(uncut.state())
    begun.append(loop.epoch())

    history, _ = whole(SKIPPING)
    assert furthest((begun, [0]), (history, [0])) <= 1e-5


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


@pytest.mark.parametrize("name", ["own train_step, even", "train_step of the workload"])
def test_a_train_step_of_its_own_is_refused(name, cut):
    with pytest.raises(WorkloadError, match=r"has a custom train_step.*kind 'mirrored'"):
        cut(CASES[name].workload, (1, 2, 1))


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
