"""An epoch as one graph call gives Keras' own numbers, with any number of replicas."""

import functools

import pytest
from exactness_cases import CASES
from guards import guarded, slow
from trials import furthest, furthest_values, run_fresh, run_keras_fit

pytestmark = pytest.mark.tf

EPOCHS = 3
TOLD_ELSEWHERE = {
    "SGD with momentum, even",
    "Adam",
    "AdamW",
    "RMSprop",
    "clipnorm",
    "clipvalue",
    "exponential decay",
    "sparse gradients",
    "sparse gradients, Adam, accumulated",
    "own train_step, even",
    "batch of all rows",
}
"""What ``test_optimizers.py`` and ``test_replica_table.py`` compare, or another case has in it."""
BY_FIT = [
    name
    for name, case in CASES.items()
    if case.keras != float("inf") and name not in TOLD_ELSEWHERE
]
BY_TWO = [
    name
    for name, case in CASES.items()
    if case.replicas and name not in TOLD_ELSEWHERE | {"no validation", "list of inputs"}
]
BY_THREE = [
    "SGD with momentum, one row over",
    "two inputs, two outputs, uneven",
    "own train_step, uneven, clipped",
]
GUARD_OF_FIT = [
    "SGD with momentum, uneven",
    "batch normalization",
    "sample weight",
    "own train_step, uneven, clipped",
]
GUARD_OF_REPLICAS = [
    "SGD with momentum, one row over",
    "synchronized batch normalization",
    "train_step of the workload",
]


@pytest.fixture(scope="module")
def with_one_replica(replicas_of):
    """Return a function from a case's name to the run with one replica."""
    return functools.cache(
        lambda name: run_fresh(CASES[name].workload, replicas_of(1), epochs=EPOCHS)
    )


@pytest.mark.parametrize("name", guarded(BY_FIT, GUARD_OF_FIT))
def test_one_replica_gives_the_numbers_of_fit(name, replicas_of, with_one_replica):
    by_fit = run_keras_fit(CASES[name].workload, replicas_of(1), epochs=EPOCHS)

    assert furthest(with_one_replica(name), by_fit) <= CASES[name].keras


@pytest.mark.parametrize(
    ("name", "num_replicas"),
    [(name, 2) if name in GUARD_OF_REPLICAS else slow(name, 2) for name in BY_TWO]
    + [slow(name, 3) for name in BY_THREE],
)
def test_several_replicas_give_the_numbers_of_one(
    name, num_replicas, replicas_of, with_one_replica
):
    case = CASES[name]
    several = run_fresh(case.workload, replicas_of(num_replicas), epochs=EPOCHS)

    difference = furthest_values if case.weights_only else furthest
    one = with_one_replica(name)
    pair = (several[1], one[1]) if case.weights_only else (several, one)
    assert difference(*pair) <= case.replicas
