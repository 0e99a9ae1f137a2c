"""Sweep files as text: their errors with lines, overrides, and what their workloads add."""

import pytest
from sweep_files import SWEEP

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.space import Choice, Constant, Int, SearchSpace


def test_all_errors_of_a_file_are_told_in_its_order_with_their_lines(sweep):
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
searcher: {storage: 1}
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
        (3, "objective.mode"),
        (5, "space.learning_rate"),
        (6, "space.depth"),
        (9, "space.batch_size"),
        (10, "searcher.storage"),
        (12, "resources"),
        (15, "budget.num_samples"),
    ]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "sweep.yaml: 1 error\n  is empty"),
        ("- 1\n", "line 1: must be a mapping"),
        ("name: a\nb: [\n", "line 3: is not YAML"),
        (f"{SWEEP}seed: 1\nseed: 2\n", r"line 19: seed: is given twice, first on line 18"),
    ],
)
def test_a_file_that_is_no_mapping_of_settings_is_refused(text, match, sweep):
    with pytest.raises(InvalidSettingsError, match=match):
        SweepConfig.from_yaml(sweep(text))


def test_a_missing_file_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(
        InvalidSettingsError, match=f"No such file or directory; looked for {tmp_path}"
    ):
        SweepConfig.from_yaml(tmp_path / "nowhere.yaml")


def test_overrides_win_over_the_file(sweep):
    overrides = [
        "space.filters.choice=[16,32]",
        "space.learning_rate.constant=0.01",
        "space.batch_size.int=[32, 64]",
        "budget.num_samples=8",
        "mlflow=null",
    ]
    config = SweepConfig.from_yaml(sweep(SWEEP), overrides)
    assert config.space.parameters["filters"] == Choice([16, 32])
    assert config.space.parameters["learning_rate"] == Constant(0.01)
    assert config.space.parameters["batch_size"] == Int(32, 64)
    assert (config.budget.num_samples, config.mlflow) == (8, None)


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("budget", "must be key=value"),
        ("budget.num_samples=0", "must be at least 1, not 0"),
        ("budget.num_sample=8", "did you mean 'num_samples'?"),
        ("bugdet.num_samples=8", "did you mean 'budget'?"),
        ("space.filtres.choice=[1]", "has no 'filtres'; did you mean"),
        ("space.filters.chioce=[1]", "'chioce' beside 'choice'"),
        ("space.filters.int=[5,1]", "high 1 is below low 5"),
        ("seed.x=1", "must be an integer, not {'x': 1}"),
    ],
)
def test_a_bad_override_is_named(override, text, sweep):
    with pytest.raises(InvalidSettingsError, match="override") as caught:
        SweepConfig.from_yaml(sweep(SWEEP), [override])
    assert f"override {override}: " in str(caught.value)
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
    with pytest.raises(InvalidSettingsError, match="did you mean 'test_share'") as caught:
        SweepConfig.from_yaml(sweep(text))
    assert [(error.line, error.where) for error in caught.value.details] == [
        (6, "data.test_shar"),
        (7, "data.validation_share"),
        (8, "objective.mode"),
    ]


def test_a_file_is_read_although_its_workload_is_no_more(sweep):
    config = SweepConfig.from_yaml(sweep(f"{SWEEP}data: {{path: a.csv}}\n"), ["workload=gone:A"])
    assert config.data == {"path": "a.csv"}


def test_a_file_without_a_space_takes_the_workloads(tmp_path):
    (tmp_path / "mine.py").write_text("""\
import tune_tf, tune_tf.errors
class Bare(tune_tf.Workload):
    def load_data(self, config): ...
    def build_model(self, config): ...
class Mine(Bare):
    space = tune_tf.SearchSpace({"width": tune_tf.Int(2, 4)})
class Empty(Bare):
    @property
    def space(self):
        raise tune_tf.errors.InvalidSettingsError(["the hypermodel declares no hyperparameters"])
""")
    path = tmp_path / "sweep.yaml"

    def read(name, *overrides):
        settings = "objective: {metric: a, mode: min}\nbudget: {num_samples: 2}\n"
        path.write_text(f"name: a\nworkload: mine.py:{name}\n{settings}")
        return SweepConfig.from_yaml(path, overrides).space

    assert read("Mine") == SearchSpace({"width": Int(2, 4)})
    assert read("Mine", "space.width.int=[3,4]") == SearchSpace({"width": Int(3, 4)})
    with pytest.raises(InvalidSettingsError, match="space: is missing"):
        read("Bare")
    with pytest.raises(InvalidSettingsError, match="declares no hyperparameters"):
        read("Empty")
