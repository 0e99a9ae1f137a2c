"""SearchSpace: forms, groups, conditions, samples and judgement."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameters_strategy import spaces

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace, flatten, nest
from tune_tf.space.document import YamlDocument, yaml_text

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


@pytest.mark.parametrize(
    ("declared", "parameter"),
    [
        ({"uniform": [0, 1]}, Float(0, 1)),
        ({"uniform": [0, 1, 0.1]}, Float(0, 1, step=0.1)),
        ({"loguniform": [0.1, 1]}, Float(0.1, 1, log=True)),
        ({"int": [1, 3]}, Int(1, 3)),
        ({"int": [1, 7, 3]}, Int(1, 7, step=3)),
        ({"logint": [1, 8]}, Int(1, 8, log=True)),
        ({"choice": ["a", [1]]}, Choice(["a", [1]])),
        ({"constant": {"a": 1}}, Constant({"a": 1})),
        ({"constant": [8, 16]}, Constant([8, 16])),
        (64, Constant(64)),
        (None, Constant(None)),
        ({"int": [1, 3], "when": {"other": [1]}}, Int(1, 3, when={"other": 1})),
        ({"constant": 3, "when": {"other": [1, 2]}}, Constant(3, when={"other": [1, 2]})),
    ],
    ids=str,
)
def test_each_kind_is_read_and_written(declared, parameter):
    other = {"choice": [1, 2]}
    space = SearchSpace({"it": declared, "other": other})
    assert space.parameters["it"] == parameter
    assert space.to_dict() == {"it": declared, "other": other}


@given(spaces(), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_a_space_comes_back_from_yaml_and_pickle_and_holds_its_samples(space, seed):
    text = yaml_text(space.to_dict())
    again = SearchSpace(YamlDocument.parse(text).data)
    for copy in (again, pickle.loads(pickle.dumps(space)), SearchSpace(space.parameters)):
        assert copy == space
    assert again.to_dict() == space.to_dict()
    config = space.sample(np.random.default_rng(seed))
    assert space.validate(config) == []
    assert nest(flatten(config, space.parameters)) == config


@pytest.mark.parametrize(
    ("config", "values"),
    [
        ({}, {}),
        ({"a": {"b": {"c": 1}}, "d": 2}, {"a/b/c": 1, "d": 2}),
        ({"a": {}}, {"a": {}}),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}),
    ],
)
def test_nested_is_the_inverse_of_flat(config, values):
    assert flatten(config) == values
    assert nest(values) == config


@pytest.mark.parametrize("values", [{"a": 1, "a/b": 2}, {"a/b": 2, "a": 1}])
def test_a_value_is_no_group(values):
    with pytest.raises(InvalidSettingsError, match=r"^a: is given as a parameter and as a group"):
        nest(values)
    assert flatten({"a": {"b": {"c": 1}}}, leaves=["a/b"]) == {"a/b": {"c": 1}}


def test_parameters_stand_after_those_they_depend_on():
    paths = ["optimizer/name", "optimizer/momentum", "optimizer/nesterov", "epochs"]
    assert list(SPACE.parameters) == paths
    assert SPACE.parameters["epochs"] == Constant(3)
    assert SPACE.conditional
    assert not SearchSpace({"a": Int(1, 2)}).conditional


def test_samples_hold_only_what_is_active():
    rng = np.random.default_rng(0)
    found = {frozenset(SPACE.sample(rng)["optimizer"]) for _ in range(200)}
    sets = [["name"], ["name", "momentum"], ["name", "momentum", "nesterov"]]
    assert found == {frozenset(names) for names in sets}


@pytest.mark.parametrize(
    ("optimizer", "errors"),
    [
        ({"name": "adam"}, []),
        ({"name": "adam", "momentum": None}, []),
        ({"name": "adam", "momentum": 0.5}, ["momentum: is inactive but given as 0.5: leave it o"]),
        ({"name": "sgd"}, ["momentum: is missing"]),
        ({"name": "sgd", "momentum": 0.7}, ["momentum: must be one of 0.0, 0.5, 0.9, not 0.7"]),
        (
            {"name": "adam", "nam": 1},
            ["nam: is not a parameter; did you mean 'optimizer.name'?; the parameters are"],
        ),
    ],
)
def test_a_config_is_validated(optimizer, errors):
    found = SPACE.validate({"optimizer": optimizer, "epochs": 3})
    assert len(found) == len(errors)
    for detail, text in zip(found, errors, strict=True):
        assert isinstance(detail, ErrorDetail)
        assert str(detail).startswith(f"optimizer.{text}")


def test_active_takes_away_what_is_inactive():
    config = {"optimizer": {"name": "adam", "momentum": None, "nesterov": None}, "epochs": 3}
    assert SPACE.active(config) == {"optimizer": {"name": "adam"}, "epochs": 3}


def test_a_condition_on_a_stepped_float_survives_its_rounding():
    space = SearchSpace({"a": Float(0, 0.5, step=0.1), "b": Int(1, 2, when={"a": 0.3})})
    config = {"a": 3 * 0.1, "b": 1}  # 0.30000000000000004, as samplers count
    assert space.active(config) == config
