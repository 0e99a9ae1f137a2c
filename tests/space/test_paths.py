"""Paths: flat and nested configs."""

import pytest
from hypothesis import given, settings
from parameters_strategy import groups, plain

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import flatten, nest


@pytest.mark.parametrize(
    ("config", "values"),
    [
        pytest.param({}, {}, id="empty"),
        pytest.param({"a": 1}, {"a": 1}, id="root"),
        pytest.param({"a": {"b": {"c": 1}}, "d": 2}, {"a/b/c": 1, "d": 2}, id="groups"),
        pytest.param({"a": {}}, {"a": {}}, id="empty-group"),
        pytest.param({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, id="list"),
    ],
)
def test_nested_is_the_inverse_of_flat(config, values):
    assert flatten(config) == values
    assert nest(values) == config


@given(groups(plain))
@settings(max_examples=50)
def test_every_config_comes_back(config):
    assert nest(flatten(config)) == config


def test_a_leaf_may_be_a_mapping():
    assert flatten({"a": {"b": {"c": 1}}}, leaves=["a/b"]) == {"a/b": {"c": 1}}


@pytest.mark.parametrize(
    ("values", "match"),
    [
        pytest.param({"a": 1, "a/b": 2}, "^a: is given as a value and as a group", id="value-1st"),
        pytest.param({"a/b": 2, "a": 1}, "^a: is given as a value and as a group", id="group-1st"),
    ],
)
def test_a_value_is_no_group(values, match):
    with pytest.raises(InvalidSettingsError, match=match):
        nest(values)
