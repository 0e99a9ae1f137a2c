"""Spaces that cannot be meant are refused, with their line and what to write."""

import optuna
import pytest
import scipy.stats
from ray import tune

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Constant, Float, SearchSpace
from tune_tf.space.document import YamlDocument


def space_of(text):
    """Return the space of a YAML text; its errors have their lines, as in a sweep file."""
    document = YamlDocument.parse(text)
    try:
        return SearchSpace(document.data)
    except InvalidSettingsError as error:
        raise InvalidSettingsError(document.locate(error.details)) from None


KINDS = "write {uniform: [low, high]} or [low, high, step], {loguniform: [low, high]}, {int: "

ONE_PARAMETER = [
    ("{uniform: [1, 0]}", "high 0 is below low 1: give the smaller end first"),
    ("{uniform: [1]}", "uniform must be [low, high] or [low, high, step], not [1]"),
    ("{uniform: 3}", "uniform must be [low, high] or [low, high, step], not 3"),
    ("{uniform: ['0', 1]}", "low must be a number, not '0': write it without quotes"),
    ("{uniform: [true, 1]}", "low must be a number, not True"),
    ("{uniform: [0, .inf]}", "high must be a finite number, not inf"),
    ("{uniform: [.nan, 1]}", "low must be a finite number, not nan"),
    ("{uniform: [null, 1]}", "low must be a number, not nothing (null)"),
    ("{loguniform: [1, 2, 0.1]}", "step is 0.1, but a logarithmic range has none"),
    ("{uniform: [0, 1, 0.3]}", "step 0.3 does not lead from low 0 to high 1: 0.9 is the nearest"),
    ("{uniform: [0, 1, 0]}", "step must be above 0, not 0"),
    ("{uniform: [0, 1, -1]}", "step must be above 0, not -1"),
    ("{loguniform: [0, 1]}", "log needs low above 0, not 0: raise it, or search uniformly"),
    ("{loguniform: [-1, 1]}", "log needs low above 0, not -1"),
    ("{logint: [0, 9]}", "log needs low above 0, not 0"),
    ("{int: [1.5, 3]}", "low must be an integer, not 1.5"),
    ("{int: [1, false]}", "high must be an integer, not False"),
    ("{int: [1, 8, 2]}", "step 2 does not lead from low 1 to high 8: 7 is the nearest"),
    ("{int: [1, 2, 3, 4]}", "[low, high] or [low, high, step], not [1, 2, 3, 4]"),
    ("{choice: []}", "options must not be empty: give at least one"),
    ("{choice: adam}", "options must be a list, like [a, b], not 'adam': write [adam]"),
    ("{choice: {a: 1}}", "options must be a list"),
    ("{choice: [a, a]}", "options have 'a' or its equal twice: leave one of them out"),
    ("{choice: [1, true]}", "options have 1 or its equal twice"),
    ("{choice: [[1], [1]]}", "options have [1] or its equal twice"),
    ("{unifrom: [0, 1]}", "is [0, 1], which may be a range, a choice or a constant: write {unif"),
    ("{chioce: [0], when: {b: 1}}", "has no kind of parameter, one of 'uniform', 'loguniform', "),
    ("{int: [0, 1], choice: [1]}", "is declared as int and as choice: keep one"),
    ("{int: [0, 1], wen: {}}", "unknown key 'wen' beside 'int'; did you mean 'when'?"),
    ("{x: {int: [0, 1]}, when: {b: 1}}", "is no group of parameters, which "),
    ("{}", "is no group of parameters, which holds at least one"),
    ("{int: [0, 1], when: sgd}", "when must map a parameter to its value, like {optimizer: sgd}"),
    ("{int: [0, 1], when: {b: []}}", "when allows no value of 'b': list one, or leave it out"),
    ("{int: [0, 1], when: {3: 1}}", "when must name a parameter as text, not 3"),
    (
        "{int: [0, 1], when: {c: 1}}",
        "`when` names 'c', which is not a parameter; the parameters are b, a",
    ),
    ("{int: [0, 1], when: {b: 9}}", "`when` can never hold: 'b' must be an integer from 1 to 2, n"),
    ("{int: [0, 1], when: {a: 1}}", "`when` forms a cycle, a -> a: remove one of them"),
    *(
        (declared, KINDS)
        for declared in (
            *("[1.0e-4, 1.0e-1]", "[a, b, c]", "[]", "{min: 0.1, max: 0.9}"),
            *("{values: [1, 2]}", "{value: 3}", "{type: int, minval: 8, maxval: 64}"),
            *("{distribution: normal, mu: 0, sigma: 1}", "{min_value: 0, max_value: 1}"),
            *("{parameterType: double, feasibleSpace: {min: '0.01', max: '0.03'}}", "{min: 1}"),
            *("{low: 1, high: 10, log: true, type: int}", "{grid_search: [1, 2]}"),
        )
    ),
]


@pytest.mark.parametrize(("declared", "text"), ONE_PARAMETER, ids=[it for it, _ in ONE_PARAMETER])
def test_a_parameter_is_refused_with_its_line_its_rule_and_what_to_write(declared, text):
    with pytest.raises(InvalidSettingsError) as caught:
        space_of(f"b: {{int: [1, 2]}}\na: {declared}\n")
    (detail,) = caught.value.details
    assert (detail.where.partition(".")[0], detail.line) == ("a", 2)
    assert text in detail.what


@pytest.mark.parametrize(
    ("text", "where", "line", "match"),
    [
        ("null", "", None, "is empty"),
        ("[a]", "", 1, "must be a mapping"),
        ("x: 1\n3: 1", "3", 2, "a name must be text, not 3: put it in quotes"),
        ("x: 1\n'': 1", "", 2, "must not be empty"),
        ("x: 1\na.b: 1", "a.b", 2, "a name must not be empty or contain"),
        ("x: 1\na: 1\na/b: 2", "a", 2, "is given as a parameter and as a group"),
        ("a: {b: 2}\na/b: 1", "a.b", 1, "is given twice"),
        ("x: 1\na/int: 1", "a.int", 1, "a group cannot hold a parameter named 'int'"),
        ("a: {int: [1, 2], when: {b: 1}}\nb: {int: [1, 2], when: {a: 1}}", "a", 1, "a -> b -> a"),
        ("a: {int: [1, 2], when: {o: sdg}}\no: {choice: [sgd]}", "a", 1, "did you mean 'sgd'"),
    ],
)
def test_a_space_is_refused_with_its_place(text, where, line, match):
    with pytest.raises(InvalidSettingsError, match=match) as caught:
        space_of(f"{text}\n")
    assert [(each.where, each.line) for each in caught.value.details] == [(where, line)]


def test_all_errors_are_reported_at_once():
    declared = {
        "a": {"uniform": [1, 0], "when": {"c": 9}},
        "g": {"b": {"choice": []}, "d": {"int": [1, 2], "when": {"a": 3, "nowhere": 1}}},
        "c": {"int": [1, 3]},
        "x.y": 1,
    }
    with pytest.raises(InvalidSettingsError, match="4 errors") as caught:
        SearchSpace(declared)
    assert [detail.where for detail in caught.value.details] == ["a", "g.b", "x.y", "g.d"]
    with pytest.raises(InvalidSettingsError, match="3 errors"):
        Float(2, -1, log=True, step=1, when=3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([16, 32], r"is \[16, 32\], which may be a range"),
        ({1, 2}, "which may be"),
        (range(3), "which may be"),
        (lambda config: 1, "which may be"),
        (scipy.stats.norm(), "which may be"),
        (optuna.distributions.FloatDistribution(0, 1), "which may be"),
        (tune.loguniform(1e-4, 1e-1), "SearchSpace.from_ray takes Ray's"),
        (tune.sample_from(lambda spec: 1), "SearchSpace.from_ray takes Ray's"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_python_object_that_may_be_a_range_is_refused(value, text):
    with pytest.raises(InvalidSettingsError, match=rf"^group\.rate: .*{text}"):
        SearchSpace({"group": {"rate": value}})
    assert SearchSpace({"rate": Constant([16, 32])}).parameters["rate"].value == [16, 32]


@pytest.mark.parametrize("space", [None, [1], "x"], ids=repr)
def test_what_is_no_mapping_is_refused(space):
    with pytest.raises(InvalidSettingsError, match="a search space must be a mapping like"):
        SearchSpace(space)


@pytest.mark.parametrize(
    "text", ["adam", "'2024-01-05'", "10-20", "'3:4'", "'64,32'", "relu (default)", "1.5", "null"]
)
def test_plain_values_stay_constants(text):
    (parameter,) = space_of(f"width: {text}\n").parameters.values()
    assert isinstance(parameter, Constant)
