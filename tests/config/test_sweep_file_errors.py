"""Sweep files as text: their errors with lines, and overrides."""

import pytest
from sweep_files import SWEEP

from tune_tf.config import (
    SweepConfig,
)
from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Int


def test_all_faults_of_a_file_are_told_in_its_order_with_their_lines(sweep):
    path = sweep("""\
name: bad name
wrkload: a
objective: {metric: loss, mode: lowest}
space:
  learning_rate: {uniform: [1, 0]}
  depth:
    choice: []
  batch_size: 1
  batch_size: 1
searcher: {seed: x}
parallelism: {num_replicas: 2}
resources:
  gpus: 1
budget:
  num_samples: 0
""")
    with pytest.raises(InvalidSettingsError, match=r"sweep.yaml: 10 errors") as caught:
        SweepConfig.from_yaml(path)
    assert [(error.line, error.where) for error in caught.value.details] == [
        (1, "name"),
        (1, "workload"),
        (2, "wrkload"),
        (3, "objective"),
        (5, "space.learning_rate"),
        (6, "space.depth"),
        (9, "space.batch_size"),
        (10, "searcher.seed"),
        (12, "resources"),
        (15, "budget.num_samples"),
    ]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        pytest.param("", "sweep.yaml: 1 error\n  is empty", id="empty"),
        pytest.param("- 1\n", "line 1: must be a mapping", id="list"),
        pytest.param("name: a\nb: [\n", "line 3: is not YAML", id="syntax"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(text, match, sweep):
    with pytest.raises(InvalidSettingsError, match=match):
        SweepConfig.from_yaml(sweep(text))


@pytest.mark.parametrize("space", ["{}", "null"])
def test_a_space_without_a_parameter_is_refused(space, sweep):
    text = SWEEP.partition("space:")[0] + f"space: {space}\nbudget: {{num_samples: 1}}\n"
    with pytest.raises(InvalidSettingsError, match=r"line \d+: space: .*learning_rate"):
        SweepConfig.from_yaml(sweep(text))


def test_a_missing_file_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(InvalidSettingsError, match=f"no such file; looked for {tmp_path}"):
        SweepConfig.from_yaml(tmp_path / "nowhere.yaml")


def test_overrides_win_over_the_file(sweep):
    overrides = [
        "space.filters.choice=[16,32]",
        "space.learning_rate.constant=0.01",
        "space.batch_size.int=[32, 64]",
        "budget.num_samples=8",
        "mlflow=null",
        "max_failures=2",
    ]
    config = SweepConfig.from_yaml(sweep(SWEEP), overrides)
    assert config.space.parameters["filters"] == Choice([16, 32])
    assert config.space.parameters["learning_rate"] == Constant(0.01)
    assert config.space.parameters["batch_size"] == Int(32, 64)
    assert (config.budget.num_samples, config.mlflow, config.max_failures) == (8, None, 2)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        pytest.param("budget", "must be key=value", id="malformed"),
        pytest.param("budget.num_samples=0", "must be at least 1, not 0", id="bad-value"),
        pytest.param("budget.num_sample=8", "did you mean 'num_samples'?", id="unknown-key"),
        pytest.param("bugdet.num_samples=8", "did you mean 'budget'?", id="unknown-section"),
        pytest.param("space.filtres.choice=[1]", "has no 'filtres'; did you mean", id="parameter"),
        pytest.param("space.filters.chioce=[1]", "'chioce' beside 'choice'", id="kind"),
        pytest.param("space.filters.int=[5,1]", "low 5 is above high 1", id="ends"),
        pytest.param("seed.x=1", "must be an integer, not {'x': 1}", id="below-a-default"),
    ],
)
def test_a_bad_override_is_named(override, text, sweep):
    with pytest.raises(InvalidSettingsError, match="--set") as caught:
        SweepConfig.from_yaml(sweep(SWEEP), [override])
    assert caught.value.source == "--set"
    assert override in str(caught.value)
    assert text in str(caught.value)


def test_data_errors_of_a_workload_are_listed_by_line_with_other_errors(sweep):
    text = """\
name: wine
workload: tune_tf.workloads.tabular:TabularMLP
data:
  path: wine.csv
  target: class
  test_shar: 0.5
  validation_share: 2
objective: {metric: val_accuracy, mode: maximum}
space: {width: {choice: [8]}}
budget: {num_samples: 1}
"""
    with pytest.raises(InvalidSettingsError, match="3 errors") as caught:
        SweepConfig.from_yaml(sweep(text))
    assert [(error.line, error.where) for error in caught.value.details] == [
        (6, "data.test_shar"),
        (7, "data.validation_share"),
        (8, "objective"),
    ]
    assert "did you mean 'test_share'?" in str(caught.value)


def test_a_file_is_read_although_its_workload_is_no_more(sweep):
    config = SweepConfig.from_yaml(sweep(f"{SWEEP}data: {{path: a.csv}}\n"), ["workload=gone:A"])
    assert config.data == {"path": "a.csv"}
