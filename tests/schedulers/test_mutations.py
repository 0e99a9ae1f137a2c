"""Mutable parameters of PBT and PB2."""

import math

import numpy as np
import pytest

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace

LOSS = Objective("val_loss", "min")

SPACE = SearchSpace(
    {
        "rate": Float(1e-4, 1e-1, log=True),
        "optimizer": {"momentum": Float(0.0, 0.9), "kind": Choice(["sgd", "adam"])},
        "warmup": Int(0, 3, when={"optimizer/kind": "sgd"}),
        "units": Int(8, 64, step=8),
        "seed": Constant(3),
    }
)


def pbt(name="pbt", **settings):
    from tune_tf.schedulers import scheduler

    return scheduler(name, LOSS, **{"space": SPACE, **settings})


def test_all_that_can_change_is_taken_where_nothing_is_named():
    made = pbt()
    assert set(made._hyperparam_mutations) == {"rate", "optimizer", "units"}
    assert set(made._hyperparam_mutations["optimizer"]) == {"momentum", "kind"}


@pytest.mark.parametrize("path", ["optimizer.momentum", "optimizer/momentum"])
def test_a_name_in_a_group_is_written_with_a_dot_or_a_slash(path):
    made = pbt(mutations=[path])
    assert list(made._hyperparam_mutations) == ["optimizer"]
    assert list(made._hyperparam_mutations["optimizer"]) == ["momentum"]


def test_a_choice_moves_to_its_neighbours_and_is_not_multiplied():
    made = pbt(mutations=["optimizer/kind"])
    assert made._hyperparam_mutations == {"optimizer": {"kind": ["sgd", "adam"]}}


REFUSED = {
    "no space": ("pbt", {"space": None}, "space", "pass the search space as space=..."),
    "unknown": ("pbt", {"mutations": ["rat"]}, "mutations", "not in the search space; did you"),
    "conditional": ("pbt", {"mutations": ["warmup"]}, "mutations", "warmup is conditional"),
    "constant": ("pbt", {"mutations": ["seed"]}, "mutations", "seed is a constant"),
    "choice in pb2": ("pb2", {"mutations": ["optimizer.kind"]}, "mutations", "is a choice, and"),
    "step in pb2": ("pb2", {"mutations": ["units"]}, "mutations", "units has a step, and pb2"),
    "one value in pb2": (
        "pb2",
        {"mutations": ["a"], "space": SearchSpace({"a": Float(1, 1)})},
        "mutations",
        "a has only one value",
    ),
    "nothing can": (
        "pb2",
        {"space": SearchSpace({"a": Choice([1, 2]), "b": 3})},
        "mutations",
        "no parameter that pb2 can change: a is a choice",
    ),
}


@pytest.mark.parametrize(("name", "settings", "where", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_change_is_refused_by_name(name, settings, where, text):
    with pytest.raises(InvalidSettingsError, match=r"\w") as caught:
        pbt(name, **settings)
    (fault,) = caught.value.details
    assert fault.where == where
    assert text in fault.what


def test_all_that_cannot_change_is_told_at_once():
    with pytest.raises(InvalidSettingsError, match="2 errors"):
        pbt(mutations=["seed", "warmup"])


@pytest.mark.parametrize(
    ("parameter", "given", "kept"),
    [
        (Float(0, 1), 1.2, 1.0),
        (Float(0, 1), -0.1, 0.0),
        (Float(0, 1), 0.5, 0.5),
        (Float(0.5, 2.0, step=0.5), 1.2, 1.0),
        (Float(0.5, 2.0, step=0.5), 9.0, 2.0),
        (Int(1, 9), 11, 9),
        (Int(3, 11, step=4), 5, 3),
        (Int(3, 11, step=4), 100, 11),
        (Choice(["a", "b"]), "a", "a"),
    ],
    ids=str,
)
def test_a_changed_value_is_brought_back_into_its_range(parameter, given, kept):
    from tune_tf.schedulers.mutations import nearest_value

    found = nearest_value(parameter, given)
    assert found == kept
    assert type(found) is type(kept)


def test_a_thousand_changes_in_a_row_stay_in_the_space():
    import random

    from ray.tune.experiment import Trial

    space = SearchSpace({"g": {"a": Float(1e-3, 1, log=True), "n": Int(2, 10, step=4)}, "b": 5})
    made = pbt(space=space)
    random.seed(0)
    trial = Trial("trainable", stub=True, config={"g": {"a": 0.9, "n": 10}, "b": 5})
    seen = set()
    for _ in range(1000):
        config, _ = made._get_new_config(trial, trial)
        assert space.validate(config) == []
        seen.add(config["g"]["n"])
        trial.set_config(config)
    assert seen == {2, 6, 10}


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.3), (1e-4, 0.9), (-0.7, 1e9), (0, 1)])
def test_the_ends_that_pb2_is_given_survive_its_rounding_within_the_range(low, high):
    made = pbt("pb2", space=SearchSpace({"g": {"a": Float(low, high)}}))
    first, last = made._hyperparam_bounds["g"]["a"]
    assert low <= float(np.float32(first)) < float(np.float32(last)) <= high
    assert math.isclose(first, low, rel_tol=1e-6)
    assert math.isclose(last, high, rel_tol=1e-6)
