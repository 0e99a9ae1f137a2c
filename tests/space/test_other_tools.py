"""Declarations in the words of other tools are refused with the line to write."""

import inspect

import numpy as np
import optuna
import pytest
import scipy.stats
from ray import tune

from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, SearchSpace
from tune_tf.space.other_tools import intended_parameter, python_source

DECLARED = [
    ("[1.0e-4, 1.0e-1]", "{loguniform: [0.0001, 0.1]}"),
    ("[0.1, 0.9]", "{uniform: [0.1, 0.9]}"),
    ("[8, 64]", "{int: [8, 64]}"),
    ("[a, b, c]", "{choice: [a, b, c]}"),
    ("'1e-4..1e-1'", "{loguniform: [0.0001, 0.1]}"),
    ("'[0.1, 0.5]'", "{uniform: [0.1, 0.5]}"),
    ("1 to 8", "{int: [1, 8]}"),
    ("tune.loguniform(1e-4, 1e-1)", "{loguniform: [0.0001, 0.1]}"),
    ("tune.randint(1, 5)", "{int: [1, 4]}"),
    ("tune.quniform(0, 1, 0.25)", "{quniform: [0.0, 1.0, 0.25]}"),
    ("choice([16, 32])", "{choice: [16, 32]}"),
    ("trial.suggest_float('x', 1e-5, 1e-1, log=True)", "{loguniform: [1e-05, 0.1]}"),
    ("trial.suggest_categorical('x', [1, 2])", "{choice: [1, 2]}"),
    ("hp.Int('units', min_value=32, max_value=512, step=32)", "{int: [32, 512, 32]}"),
    ("hp.Boolean('x')", "{choice: [false, true]}"),
    # W&B
    ("{min: 0.1, max: 0.9}", "{uniform: [0.1, 0.9]}"),
    ("{min: 1, max: 9}", "{int: [1, 9]}"),
    ("{values: [1, 2]}", "{choice: [1, 2]}"),
    ("{value: 3}", "3"),
    ("{distribution: log_uniform_values, min: 1.0e-4, max: 0.1}", "{loguniform: [0.0001, 0.1]}"),
    ("{distribution: q_uniform, min: 0, max: 10, q: 2}", "{int: [0, 10, 2]}"),
    (
        "{distribution: q_log_uniform_values, min: 32, max: 256, q: 8}",
        "{logint: [32, 256]}",
    ),
    ("{distribution: inv_log_uniform, min: 0, max: 2}", "{loguniform: [0.135335, 1.0]}"),
    # Determined
    ("{type: int, minval: 8, maxval: 64}", "{int: [8, 64]}"),
    ("{type: double, minval: 0, maxval: 1}", "{uniform: [0.0, 1.0]}"),
    ("{type: double, minval: 0, maxval: 1, count: 5}", "{quniform: [0.0, 1.0, 0.25]}"),
    ("{type: int, minval: 8, maxval: 64, count: 8}", "{int: [8, 64, 8]}"),
    ("{type: int, minval: 8, maxval: 64, count: 6}", "{int: [8, 64]}"),
    ("{type: log, base: 10, minval: -4, maxval: -1}", "{loguniform: [0.0001, 0.1]}"),
    ("{type: categorical, vals: [a, b]}", "{choice: [a, b]}"),
    # Katib
    (
        "{parameterType: double, feasibleSpace: {min: '0.01', max: '0.03'}}",
        "{uniform: [0.01, 0.03]}",
    ),
    (
        "{parameterType: int, feasibleSpace: {min: '1', max: '5', step: '2'}}",
        "{int: [1, 5, 2]}",
    ),
    ("{parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}", "{choice: [sgd, adam]}"),
    # Optuna, KerasTuner, Ray
    ("{low: 1, high: 10, log: true, type: int}", "{logint: [1, 10]}"),
    ("{min_value: 0.0001, max_value: 0.01, sampling: log}", "{loguniform: [0.0001, 0.01]}"),
    ("{grid_search: [1, 2]}", "{choice: [1, 2]}"),
]


@pytest.mark.parametrize(("declared", "line"), DECLARED, ids=[each for each, _ in DECLARED])
def test_a_declaration_of_another_tool_in_a_file_is_refused_with_the_line_to_write(declared, line):
    with pytest.raises(InvalidSettingsError, match="line 1: width: ") as caught:
        SearchSpace.from_yaml(f"width: {declared}\n")
    assert f"write `width: {line}`" in str(caught.value)
    assert SearchSpace.from_yaml(f"width: {line}\n").parameters


def test_a_list_of_parameters_with_names_is_refused_with_the_line_of_each():
    listed = [
        {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.03"}},
        {"name": "layers", "parameterType": "int", "feasibleSpace": {"min": "2", "max": "5"}},
    ]
    with pytest.raises(InvalidSettingsError, match="not a list of parameters with names") as caught:
        SearchSpace.from_dict(listed)
    for line in ("`lr: {uniform: [0.01, 0.03]}`", "`layers: {int: [2, 5]}`"):
        assert line in str(caught.value)


@pytest.mark.parametrize(
    "declared", ["{distribution: normal, mu: 0, sigma: 1}", "randn()", "{min: 1}", "[]"]
)
def test_what_has_no_counterpart_is_refused_with_the_kinds(declared):
    with pytest.raises(InvalidSettingsError, match="use one of 'uniform'"):
        SearchSpace.from_yaml(f"width: {declared}\n")


@pytest.mark.parametrize(
    "text",
    ["adam", "'2024-01-05'", "10-20", "'3:4'", "'64,32'", "relu (default)", "1.5", "null"],
)
def test_plain_values_stay_constants(text):
    (parameter,) = SearchSpace.from_yaml(f"width: {text}\n").parameters.values()
    assert isinstance(parameter, Constant)


def test_groups_may_use_the_words_of_other_tools_as_names():
    space = SearchSpace.from_yaml("scale: {min: {int: [0, 1]}, max: {int: [2, 3]}}\n")
    assert list(space.parameters) == ["scale/min", "scale/max"]
    assert list(SearchSpace({"optimizer": {"type": "adam"}}).parameters) == ["optimizer/type"]


def test_a_list_is_offered_as_a_range_as_options_and_as_itself():
    with pytest.raises(InvalidSettingsError) as caught:
        SearchSpace.from_yaml("width: [16, 32]\n")
    for line in ("`width: {int: [16, 32]}`", "`{choice: [16, 32]}`", "`{constant: [16, 32]}`"):
        assert line in str(caught.value)
    space = SearchSpace({"width": Constant([16, 32])})
    assert SearchSpace.from_dict(space.to_dict()) == space


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ((1e-4, 1e-1), "Float(0.0001, 0.1, log=True)"),
        ([16, 32], "Int(16, 32)"),
        ({1, 2}, "Choice([1, 2])"),
        (range(1, 10, 2), "Int(1, 9, step=2)"),
        (np.linspace(0, 1, 3), "Choice([0.0, 0.5, 1.0])"),
        ("1e-4..1e-1", "Float(0.0001, 0.1, log=True)"),
        ({"min": 0, "max": 1.5}, "Float(0.0, 1.5)"),
        (tune.loguniform(1e-4, 1e-1), "Float(0.0001, 0.1, log=True)"),
        (tune.grid_search([1, 2]), "Choice([1, 2])"),
        (scipy.stats.uniform(1, 2), "Float(1.0, 3.0)"),
        (scipy.stats.loguniform(1e-4, 1e-1), "Float(0.0001, 0.1, log=True)"),
        (scipy.stats.randint(1, 5), "Int(1, 4)"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_such_a_value_in_python_is_refused_with_the_expression_to_write(value, source):
    with pytest.raises(InvalidSettingsError) as caught:
        SearchSpace({"group": {"rate": value}})
    assert str(caught.value).startswith("group.rate: is ")
    assert f"write {source}, or Constant(...)" in str(caught.value)


@pytest.mark.parametrize("value", [lambda config: 1, scipy.stats.norm(), tune.randn(), [], ()])
def test_a_value_in_python_that_means_no_parameter_is_refused(value):
    with pytest.raises(InvalidSettingsError, match=r"write Constant\(\.\.\.\)"):
        SearchSpace({"rate": value})


def test_a_declaration_of_a_file_in_python_names_from_dict():
    with pytest.raises(InvalidSettingsError, match=r"use SearchSpace\.from_dict"):
        SearchSpace({"rate": {"loguniform": [1e-4, 1e-1]}})


DOMAINS = [
    *(tune.uniform(0, 1), tune.quniform(0, 1, 0.25), tune.loguniform(1e-4, 1), tune.randint(1, 9)),
    *(tune.qrandint(2, 8, 2), tune.lograndint(1, 9), tune.choice([1, 2]), tune.randn()),
    *(tune.qloguniform(1e-3, 1, 1e-3), tune.qlograndint(1, 9, 2), tune.qrandn(0, 1, 0.1)),
    tune.sample_from(lambda spec: 1),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda each: f"{type(each).__name__}")
def test_every_domain_of_ray_is_refused_in_a_plain_space_as_from_ray_reads_it(domain):
    meant = intended_parameter(domain)
    try:
        (read,) = SearchSpace.from_ray({"rate": domain}).parameters.values()
    except InvalidSettingsError:
        read = None
    assert meant == read
    with pytest.raises(InvalidSettingsError):
        SearchSpace({"rate": domain})


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
@pytest.mark.parametrize(
    "kind",
    [
        each
        for each in vars(optuna.distributions).values()
        if inspect.isclass(each)
        and issubclass(each, optuna.distributions.BaseDistribution)
        and "low" in inspect.signature(each).parameters
    ],
)
def test_every_range_of_optuna_is_understood(kind):
    meant = intended_parameter(kind(1, 9, **({"q": 2} if "Discrete" in kind.__name__ else {})))
    assert (meant.low, meant.high) == (1, 9)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"a": tune.grid_search([1, 2])}, "a: is a grid_search.*write tune.choice\\(\\[1, 2\\]\\)"),
        ({"a": [tune.uniform(0, 1)]}, "a: is a list that contains domains"),
        ({"a/b": 1}, "a name must not be empty or contain"),
        ({"a": {"b": tune.randn()}}, "a.b: Ray's Float.*has no counterpart"),
        ({"a": tune.sample_from(lambda spec: 1)}, "a: Ray's Function.*has no counterpart"),
        ({3: 1}, "a name must be text"),
        ({"a": tune.choice([tune.uniform(0, 1)])}, "a: is a choice among domains"),
        ({"a": tune.choice([{"b": tune.uniform(0, 1)}])}, "a: is a choice among domains"),
    ],
    ids=["grid", "list", "slash", "normal", "function", "number", "choice", "nested-choice"],
)
def test_what_a_space_cannot_take_from_ray_is_refused(config, text):
    with pytest.raises(InvalidSettingsError, match=text):
        SearchSpace.from_ray(config)


def test_ray_lists_without_domains_are_constants():
    assert SearchSpace.from_ray({"a": [1, 2]}).parameters == {"a": Constant([1, 2])}


def test_the_source_of_a_parameter_makes_the_same_parameter():
    parameter = Choice(["a", 1], when={"b": 2})
    assert eval(python_source(parameter), {"Choice": Choice}) == parameter
