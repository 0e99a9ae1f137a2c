"""The search space as a sweep file writes it."""

import io

import pytest
from hypothesis import given, settings
from parameters_strategy import conditional_spaces, spaces
from ruamel.yaml import YAML

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace


@pytest.mark.parametrize(
    ("declared", "parameter"),
    [
        pytest.param({"uniform": [0, 1]}, Float(0, 1), id="uniform"),
        pytest.param({"quniform": [0, 1, 0.1]}, Float(0, 1, step=0.1), id="quniform"),
        pytest.param({"loguniform": [0.1, 1]}, Float(0.1, 1, log=True), id="loguniform"),
        pytest.param({"int": [1, 3]}, Int(1, 3), id="int"),
        pytest.param({"int": [1, 7, 3]}, Int(1, 7, step=3), id="stepped-int"),
        pytest.param({"logint": [1, 8]}, Int(1, 8, log=True), id="logint"),
        pytest.param({"choice": ["a", [1]]}, Choice(["a", [1]]), id="choice"),
        pytest.param({"constant": {"a": 1}}, Constant({"a": 1}), id="constant"),
        pytest.param(64, Constant(64), id="bare-scalar"),
        pytest.param({"constant": [8, 16]}, Constant([8, 16]), id="constant-list"),
        pytest.param(None, Constant(None), id="bare-null"),
        pytest.param(
            {"int": [1, 3], "when": {"other": 1}}, Int(1, 3, when={"other": 1}), id="when"
        ),
        pytest.param(
            {"constant": 3, "when": {"other": [1, 2]}},
            Constant(3, when={"other": [1, 2]}),
            id="when-several",
        ),
    ],
)
def test_each_kind_is_read_and_written(declared, parameter):
    other = {"choice": [1, 2]}
    space = SearchSpace.from_dict({"it": declared, "other": other})
    assert space.parameters["it"] == parameter
    assert space.to_dict() == {"it": declared, "other": other}


@given(spaces | conditional_spaces())
@settings(max_examples=100)
def test_every_space_comes_back_from_a_dict(space):
    assert SearchSpace.from_dict(space.to_dict()) == space


@given(spaces | conditional_spaces())
@settings(max_examples=40)
def test_every_space_comes_back_from_yaml(space):
    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(space.to_dict(), text)
    assert SearchSpace.from_yaml(text.getvalue()) == space


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        pytest.param({"uniform": [1, 0]}, "low 1 is above high 0", id="order"),
        pytest.param({"uniform": [1]}, "uniform must be [low, high], not [1]", id="one-end"),
        pytest.param({"uniform": 3}, "uniform must be [low, high], not 3", id="no-list"),
        pytest.param({"int": [1, 2, 3, 4]}, "[low, high] or [low, high, step]", id="four"),
        pytest.param({"quniform": [0, 1]}, "must be [low, high, step], not", id="no-step"),
        pytest.param({"choice": "adam"}, "write [adam]", id="choice-text"),
        pytest.param({"unifrom": [0, 1]}, "did you mean 'uniform'?", id="misspelt"),
        pytest.param(
            {"chioce": [0], "when": {"b": 1}}, "did you mean 'choice'?", id="misspelt-when"
        ),
        pytest.param({"randint": [0, 1]}, "did you mean 'int'?", id="ray's"),
        pytest.param({"int": [0, 1], "choice": [1]}, "is declared as int and as choice", id="two"),
        pytest.param(
            {"int": [0, 1], "wen": {}}, "'wen' beside 'int'; did you mean 'when'?", id="key"
        ),
        pytest.param({"x": {"int": [0, 1]}, "when": {"b": 1}}, "a group has none", id="group-when"),
        pytest.param({}, "{} declares nothing", id="empty"),
        pytest.param({"int": [0, 1], "when": 3}, "`when` must map a parameter", id="when"),
    ],
)
def test_bad_declarations_are_refused_with_their_place(declared, text):
    with pytest.raises(InvalidSettingsError, match=r"^a: ") as caught:
        SearchSpace.from_dict({"a": declared, "b": {"int": [1, 2]}})
    (detail,) = caught.value.details
    assert detail.where == "a"
    assert text in detail.what


def test_all_faults_are_told_at_once():
    declared = {
        "a": {"uniform": [1, 0], "when": {"c": 9}},
        "g": {"b": {"choice": []}, "d": {"int": [1, 2], "when": {"a": 3, "nowhere": 1}}},
        "c": {"int": [1, 3]},
        "x.y": 1,
    }
    with pytest.raises(InvalidSettingsError, match="5 errors") as caught:
        SearchSpace.from_dict(declared)
    assert [detail.where for detail in caught.value.details] == ["a", "g.b", "", "g.d", "a"]


def test_faults_of_a_file_have_their_lines(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text("a: 1\ng:\n  b: {int: [2, 1]}\na: 2\n")
    with pytest.raises(InvalidSettingsError, match=r"space.yaml: 2 errors") as caught:
        SearchSpace.from_yaml(path)
    assert [(e.where, e.line) for e in caught.value.details] == [
        ("g.b", 3),
        ("a", 4),
    ]


@pytest.mark.parametrize("declared", [None, [1], "x"], ids=repr)
def test_a_space_that_is_no_mapping_is_refused(declared):
    with pytest.raises(InvalidSettingsError, match="a search space must be a mapping"):
        SearchSpace.from_dict(declared)


def test_a_name_that_ends_in_yaml_is_a_file():
    match = "space.yaml: 1 error\n.*there is no such file; looked for /"
    with pytest.raises(InvalidSettingsError, match=match) as caught:
        SearchSpace.from_yaml("nowhere/space.yaml")
    assert caught.value.details == (ErrorDetail("", caught.value.details[0].what),)
