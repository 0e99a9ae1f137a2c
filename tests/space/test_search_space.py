"""SearchSpace: groups, conditions, samples and judgement."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameters_strategy import conditional_spaces, spaces

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace

SGD = {"optimizer/name": "sgd"}
SPACE = SearchSpace(
    {
        "optimizer": {
            "nesterov": Choice([True, False], when={"optimizer.momentum": [0.5, 0.9]}),
            "momentum": Choice([0.0, 0.5, 0.9], when=SGD),
            "name": Choice(["adam", "sgd"]),
        },
        "epochs": 3,
    }
)


def test_parameters_stand_after_those_they_depend_on():
    paths = ["optimizer/name", "optimizer/momentum", "optimizer/nesterov", "epochs"]
    assert list(SPACE.parameters) == paths
    assert SPACE.parameters["epochs"] == Constant(3)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        pytest.param([1], "is a mapping of names to parameters", id="no-mapping"),
        pytest.param({3: 1}, "a name must be text, not 3", id="number"),
        pytest.param({"": 1}, "must not be empty", id="empty-name"),
        pytest.param({"a.b": 1}, r"^a\.b: a name must not .* not 'a\.b'", id="dot"),
        pytest.param({"a": {}}, "^a: is an empty group", id="empty-group"),
        pytest.param(
            {"a": {"int": 1}}, "^a.int: a group cannot hold a parameter .*'int'", id="kind"
        ),
        pytest.param({"a": 1, "a/b": 2}, "^a: is given as a parameter and as a group", id="both"),
        pytest.param({"a/b": 1, "a": {"b": 2}}, "^a.b: is given twice", id="twice"),
        pytest.param(
            {"lr": Float(0, 1, when={"optimiser": "sgd"}), "optimizer": "sgd"},
            r"^lr: `when` names 'optimiser', .* 'optimizer'\?; the parameters are lr, optimizer",
            id="unknown-parent",
        ),
        pytest.param(
            {"lr": Float(0, 1, when={"o": "sdg"}), "o": Choice(["sgd", "adam"])},
            r"^lr: `when` can never hold: 'o' must be one of .* not 'sdg'; did you mean 'sgd'\?",
            id="no-option-of-the-parent",
        ),
        pytest.param(
            {"a": Float(0, 1, when={"b": 9}), "b": Int(1, 3)},
            "^a: `when` can never hold: 'b' must be an integer from 1 to 3, not 9",
            id="out-of-the-parents-range",
        ),
        pytest.param(
            {"a": Int(1, 2, when={"b": 1}), "b": Int(1, 2, when={"a": 1})},
            "`when` forms a cycle, a -> b -> a",
            id="circle",
        ),
        pytest.param({"a": Int(1, 2, when={"a": 1})}, "cycle, a -> a", id="itself"),
    ],
)
def test_bad_spaces_are_refused(parameters, match):
    with pytest.raises(InvalidSettingsError, match=match):
        SearchSpace(parameters)


@pytest.mark.parametrize(
    ("parameters", "conditional"),
    [
        pytest.param({"a": Int(1, 2)}, False, id="plain"),
        pytest.param({"a": Int(1, 2), "b": Constant(1, when={"a": 1})}, True, id="when"),
    ],
)
def test_a_space_knows_whether_it_has_conditions(parameters, conditional):
    assert SearchSpace(parameters).conditional is conditional


@given(spaces | conditional_spaces(), st.integers(0, 2**32))
@settings(max_examples=100)
def test_a_sample_is_valid(space, seed):
    assert space.validate(space.sample(np.random.default_rng(seed))) == []


def test_samples_hold_only_what_is_active():
    rng = np.random.default_rng(0)
    found = {frozenset(SPACE.sample(rng)["optimizer"]) for _ in range(200)}
    sets = [["name"], ["name", "momentum"], ["name", "momentum", "nesterov"]]
    assert found == {frozenset(names) for names in sets}


@pytest.mark.parametrize(
    ("optimizer", "errors"),
    [
        pytest.param({"name": "adam"}, [], id="valid"),
        pytest.param({"name": "adam", "momentum": None}, [], id="inactive-none"),
        pytest.param(
            {"name": "adam", "momentum": 0.5},
            [ErrorDetail("optimizer.momentum", "is inactive but given as 0.5: leave it out")],
            id="inactive",
        ),
        pytest.param(
            {"name": "sgd"}, [ErrorDetail("optimizer.momentum", "is missing")], id="missing"
        ),
        pytest.param(
            {"name": "sgd", "momentum": 0.7},
            [ErrorDetail("optimizer.momentum", "must be one of 0.0, 0.5, 0.9, not 0.7")],
            id="no-option",
        ),
        pytest.param(
            {"name": "adam", "nam": 1},
            [
                ErrorDetail(
                    "optimizer.nam",
                    "is not a parameter; did you mean 'optimizer.name'?; the parameters are "
                    "optimizer.name, optimizer.momentum, optimizer.nesterov, epochs",
                )
            ],
            id="unknown",
        ),
    ],
)
def test_a_config_is_validated(optimizer, errors):
    assert SPACE.validate({"optimizer": optimizer, "epochs": 3}) == errors


def test_active_takes_away_what_is_inactive():
    config = {"optimizer": {"name": "adam", "momentum": None, "nesterov": None}, "epochs": 3}
    assert SPACE.active(config) == {"optimizer": {"name": "adam"}, "epochs": 3}


@given(spaces | conditional_spaces())
@settings(max_examples=50)
def test_spaces_compare_hash_and_pickle(space):
    copy = pickle.loads(pickle.dumps(space))
    assert copy == space
    assert hash(copy) == hash(space)
    assert SearchSpace(space.parameters) == space
