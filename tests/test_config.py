"""SweepConfig: the schema of a sweep file, its errors, and the import of workloads."""

import json
import pickle
import subprocess
import sys

import pytest

from tune_tf.config import (
    BudgetSettings,
    MLflowSettings,
    SearcherSettings,
    SweepConfig,
    import_workload,
)
from tune_tf.config.scheduler_settings import AshaSettings
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.objective import Objective
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace

SWEEP = """\
name: digits-cnn
workload: tune_tf.workloads.digits:DigitsCNN
objective: {metric: val_accuracy, mode: max}
space:
  optimizer:     {choice: [adamw, sgd]}
  momentum:      {uniform: [0.0, 0.99], when: {optimizer: sgd}}
  learning_rate: {loguniform: [1.0e-4, 1.0e-1]}
  filters:       {choice: [8, 16, 32]}
  batch_size:    64
searcher:    {name: optuna, sampler: tpe, seed: 7}
scheduler:   {name: asha, max_t: 27, grace_period: 1, reduction_factor: 3}
parallelism: {kind: mirrored, num_replicas: 2}
resources:   {cpus: 2, gpus: 0}
budget:      {num_samples: 32, time_budget_s: 3600}
mlflow:      {tracking_uri: "sqlite:///mlflow.db", experiment_name: digits}
storage_path: ./sweeps
"""

MINIMAL = {
    "name": "small",
    "workload": "models/mine.py:Mine",
    "objective": {"metric": "loss", "mode": "min"},
    "space": {"learning_rate": {"uniform": [0, 1]}, "batch_size": {"choice": [2, 4]}},
    "budget": {"num_samples": 4},
}


@pytest.fixture
def sweep(tmp_path):
    """Return a function that writes a sweep file."""

    def write(text):
        path = tmp_path / "sweep.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_sweep_file_becomes_value_objects(sweep):
    config = SweepConfig.from_yaml(sweep(SWEEP))
    assert config.objective == Objective("val_accuracy", "max")
    assert config.space == SearchSpace(
        {
            "optimizer": Choice(["adamw", "sgd"]),
            "momentum": Float(0, 0.99, when={"optimizer": "sgd"}),
            "learning_rate": Float(1e-4, 0.1, log=True),
            "filters": Choice([8, 16, 32]),
            "batch_size": 64,
        }
    )
    assert config.searcher == SearcherSettings(sampler="tpe", seed=7)
    assert config.scheduler == AshaSettings(max_t=27, grace_period=1, reduction_factor=3)
    assert config.parallelism == Mirrored(2)
    assert config.resources == TrialResources(2, 0)
    assert config.budget == BudgetSettings(num_samples=32, time_budget_s=3600)
    assert config.mlflow == MLflowSettings(experiment_name="digits")


def test_what_is_left_out_has_defaults():
    config = SweepConfig.from_dict({**MINIMAL, "seed": 5})
    assert config.to_dict() == {
        **MINIMAL,
        "space": {"learning_rate": {"uniform": [0.0, 1.0]}, "batch_size": {"choice": [2, 4]}},
        "leading_metric": None,
        "constraints": {},
        "seed": 5,
        "searcher": {
            "name": "optuna",
            "sampler": "tpe",
            "seed": 5,
            "storage": None,
            "study_name": None,
            "points_to_evaluate": [],
            "warm_start_from": None,
            "allow_changed_space": False,
        },
        "scheduler": {"name": "fifo", "max_t": 100},
        "parallelism": {"kind": "mirrored", "num_replicas": 1},
        "resources": None,
        "budget": {"num_samples": 4, "time_budget_s": None},
        "mlflow": {"tracking_uri": "sqlite:///mlflow.db", "experiment_name": "small"},
        "storage_path": "./sweeps",
        "max_concurrent_trials": None,
        "max_failures": 0,
        "reuse_actors": True,
        "loop": "graph",
        "checkpoint_interval_s": 10.0,
    }


VARIANTS = {
    "minimal": {},
    "no-tracking": {"mlflow": None},
    "asha": {"scheduler": {"name": "asha", "grace_period": 3}},
    "promotion": {"scheduler": {"name": "asha", "type": "promotion"}},
    "pasha": {"scheduler": {"name": "pasha", "max_t": 9}},
    "hyperband": {"scheduler": {"name": "hyperband", "reduction_factor": 2}},
    "bohb": {"scheduler": {"name": "bohb"}},
    "median": {"scheduler": {"name": "median_stopping", "hard_stop": False}},
    "pbt": {"scheduler": {"name": "pbt", "perturbation_factors": [2, 0.5]}},
    "pb2": {"scheduler": {"name": "pb2", "mutations": ["learning_rate"]}},
    "resource-changing": {
        "scheduler": {"name": "resource_changing", "base": {"name": "asha", "max_t": 3}}
    },
    "resources": {"resources": {"cpus": 2, "gpus": 0.5}},
    "random": {"searcher": {"sampler": "random", "storage": "sqlite:///optuna.db"}},
    "objectives": {
        "objective": [{"metric": "a", "mode": "min"}, {"metric": "b", "mode": "max"}],
    },
    "constraints": {"constraints": {"params": ["<= 2e6", ">= 9"], "accuracy": ">= 0.25"}},
    "points": {
        "searcher": {"points_to_evaluate": [{"learning_rate": 0.5, "group": {"a": [1, 2]}}]},
    },
    "loop": {"loop": "fit", "reuse_actors": False, "max_concurrent_trials": 2},
    "condition": {
        "space": {"a": {"choice": [1, 2]}, "g": {"b": {"int": [1, 3], "when": {"a": 1}}}},
    },
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_settings_come_back_from_a_dict_yaml_and_pickle(changes, sweep):
    config = SweepConfig.from_dict({**MINIMAL, **changes})
    assert SweepConfig.from_dict(config.to_dict()) == config
    assert SweepConfig.from_yaml(sweep(config.to_yaml())) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()


def test_settings_are_made_of_value_objects_too():
    made = SweepConfig(
        name="small",
        workload="models/mine.py:Mine",
        objective=Objective("loss", "min"),
        space=SearchSpace({"learning_rate": Float(0, 1), "batch_size": Choice([2, 4])}),
        parallelism=Mirrored(),
        budget=BudgetSettings(num_samples=4),
    )
    assert made == SweepConfig.from_dict(MINIMAL)
    assert hash(made) == hash(SweepConfig.from_dict(MINIMAL))


def test_the_first_of_several_objectives_leads():
    loss, accuracy = Objective("loss", "min"), Objective("accuracy", "max")
    config = SweepConfig.from_dict({**MINIMAL, "objective": [loss, accuracy]})
    assert config.objectives == (loss, accuracy)
    assert config.leading_objective == loss


def test_a_named_one_of_several_objectives_leads():
    loss, accuracy = Objective("loss", "min"), Objective("accuracy", "max")
    several = {**MINIMAL, "objective": [loss, accuracy], "leading_metric": "accuracy"}
    config = SweepConfig.from_dict(several)
    assert config.leading_objective == accuracy
    assert config.objectives == (accuracy, loss)
    assert SweepConfig.from_dict(config.to_dict()) == config


def test_a_list_of_one_objective_is_that_objective():
    listed = SweepConfig.from_dict({**MINIMAL, "objective": [MINIMAL["objective"]]})
    assert listed == SweepConfig.from_dict(MINIMAL)


def test_a_file_without_a_space_takes_the_workloads(tmp_path):
    (tmp_path / "mine.py").write_text("""\
import tune_tf
class Mine(tune_tf.Workload):
    space = tune_tf.SearchSpace({"width": tune_tf.Int(2, 4)})
    def load_data(self, config): ...
    def build_model(self, config): ...
class Bare(tune_tf.Workload):
    def load_data(self, config): ...
    def build_model(self, config): ...
""")
    text = "name: a\nworkload: mine.py:{}\nobjective: {{metric: a, mode: min}}\n"
    path = tmp_path / "sweep.yaml"
    path.write_text(text.format("Mine") + "budget: {num_samples: 2}\n")
    overridden = SweepConfig.from_yaml(path, ["space.width.int=[3,4]"])
    assert SweepConfig.from_yaml(path).space == SearchSpace({"width": Int(2, 4)})
    assert overridden.space == SearchSpace({"width": Int(3, 4)})
    path.write_text(text.format("Bare") + "budget: {num_samples: 2}\n")
    with pytest.raises(InvalidSettingsError, match="space: is missing"):
        SweepConfig.from_yaml(path)


SECTION = "must be a mapping"
BAD = {
    "name-space": ({"name": "my sweep"}, "name", "letters, digits, '.', '_' and '-'"),
    "name-dot": ({"name": ".hidden"}, "name", "starting with a letter or digit"),
    "name-newline": ({"name": "a\n"}, "name", "not 'a\\n'"),
    "name-number": ({"name": 3}, "name", "not 3"),
    "workload": ({"workload": "digits"}, "workload", "module:attribute or path/to/file.py:Class"),
    "workload-call": ({"workload": "a:B()"}, "workload", "not 'a:B()'"),
    "objective-text": ({"objective": "loss"}, "objective", "mapping of metric, mode, not 'loss'"),
    "objectives-none": ({"objective": []}, "objective", "is an empty list"),
    "objectives-half": ({"objective": [{"metric": "a"}]}, "objective.0.mode", "is missing"),
    "objectives-twice": (
        {"objective": [{"metric": "a", "mode": "min"}, {"metric": "a", "mode": "max"}]},
        "objective",
        "names the metric 'a' twice",
    ),
    "objective-key": ({"objective": {"metrc": 1}}, "objective.metrc", "did you mean 'metric'?"),
    "objective-half": ({"objective": {"metric": "a"}}, "objective.mode", "is missing"),
    "mode": ({"objective": {"metric": "a", "mode": "up"}}, "objective", "not 'up'"),
    "leading": ({"leading_metric": "los"}, "leading_metric", "'loss', not 'los'; did you mean"),
    "constraint": ({"constraints": {"a": "< 3"}}, "constraints.a", "'<= 2e6' or '>= 0.9'"),
    "constraints-list": ({"constraints": ["a"]}, "constraints", "must be a mapping of metrics"),
    "space": ({"space": {"a": {"int": [2, 1]}}}, "space.a", "low 2 is above high 1"),
    "space-nothing": ({"space": None}, "space", "must be a mapping"),
    "seed-text": ({"seed": "7"}, "seed", "whole number, not '7': write it without quotes"),
    "seed-bool": ({"seed": True}, "seed", "must be a whole number, not True"),
    "seed-below": ({"seed": -1}, "seed", "must be at least 0, not -1"),
    "searcher": ({"searcher": "optuna"}, "searcher", f"{SECTION} of settings, not 'optuna'"),
    "sampler": ({"searcher": {"sampler": "tp"}}, "searcher.sampler", "did you mean 'tpe'?"),
    "searcher-name": ({"searcher": {"name": "bohb"}}, "searcher.name", "must be 'optuna', not"),
    "points": (
        {"searcher": {"points_to_evaluate": [3]}},
        "searcher.points_to_evaluate",
        "must hold configs like {learning_rate: 0.1}, not 3",
    ),
    "number-as-key": ({"searcher": {3: 1}}, "searcher.3", "unknown key"),
    "max-t": ({"scheduler": {"max_t": 0}}, "scheduler.max_t", "must be at least 1, not 0"),
    "max-t-half": ({"scheduler": {"max_t": 1.5}}, "scheduler.max_t", "whole number, not 1.5"),
    "grace": (
        {"scheduler": {"name": "asha", "max_t": 3, "grace_period": 4}},
        "scheduler.grace_period",
        "is 4 but max_t is 3",
    ),
    "grace-of-fifo": (
        {"scheduler": {"grace_period": 4}},
        "scheduler.grace_period",
        "belongs to asha, pasha, median_stopping, but the scheduler is fifo: write name: asha",
    ),
    "reduction": (
        {"scheduler": {"name": "asha", "reduction_factor": 1}},
        "scheduler.reduction_factor",
        "must be more than 1",
    ),
    "scheduler": (
        {"scheduler": {"name": "hyperbnad"}},
        "scheduler.name",
        "not 'hyperbnad'; did you mean 'hyperband'?",
    ),
    "scheduler-text": ({"scheduler": "asha"}, "scheduler", f"{SECTION} of settings, not 'asha'"),
    "scheduler-key": (
        {"scheduler": {"name": "pbt", "synchron": True}},
        "scheduler.synchron",
        "did you mean 'synch'?; known are name, max_t, perturbation_interval",
    ),
    "milestones": (
        {"scheduler": {"name": "hyperband", "reduction_factor": 1.5}},
        "scheduler.reduction_factor",
        "must be at least 2",
    ),
    "quantile": (
        {"scheduler": {"name": "pbt", "quantile_fraction": 0.6}},
        "scheduler.quantile_fraction",
        "must be at most 0.5, not 0.6",
    ),
    "probability": (
        {"scheduler": {"name": "pbt", "resample_probability": 2}},
        "scheduler.resample_probability",
        "a probability from 0 to 1, not 2",
    ),
    "interval": (
        {"scheduler": {"name": "pb2", "max_t": 3, "perturbation_interval": 4}},
        "scheduler.perturbation_interval",
        "is 4 but max_t is 3: no trial would ever be changed",
    ),
    "factors": (
        {"scheduler": {"name": "pbt", "perturbation_factors": [0]}},
        "scheduler.perturbation_factors",
        "a list of numbers above 0, like [1.2, 0.8], not [0]",
    ),
    "mutations-text": (
        {"scheduler": {"name": "pbt", "mutations": "learning_rate"}},
        "scheduler.mutations",
        "must be a list of parameters",
    ),
    "mutations-none": (
        {"scheduler": {"name": "pbt", "mutations": []}},
        "scheduler.mutations",
        "leave it out for all",
    ),
    "mutations-twice": (
        {"scheduler": {"name": "pbt", "mutations": ["learning_rate", "learning_rate"]}},
        "scheduler.mutations",
        "names learning_rate twice",
    ),
    "samples": (
        {"scheduler": {"name": "median_stopping", "min_samples_required": 0}},
        "scheduler.min_samples_required",
        "must be at least 1, not 0",
    ),
    "limit-of-base": (
        {"scheduler": {"name": "resource_changing", "max_t": 9}},
        "scheduler.max_t",
        "but the scheduler is resource_changing",
    ),
    "base": (
        {"scheduler": {"name": "resource_changing", "base": {"name": "asha", "max_t": 0}}},
        "scheduler.base.max_t",
        "must be at least 1, not 0",
    ),
    "base-of-itself": (
        {"scheduler": {"name": "resource_changing", "base": {"name": "resource_changing"}}},
        "scheduler.base.name",
        "not 'resource_changing'",
    ),
    "kind": ({"parallelism": {"kind": "miror"}}, "parallelism.kind", "one of 'mirrored', not"),
    "replicas": ({"parallelism": {"num_replicas": 0}}, "parallelism", "not 0"),
    "rows": (
        {"parallelism": {"num_replicas": 3}},
        "parallelism.num_replicas",
        "is 3 but space.batch_size goes down to 2",
    ),
    "cpus": ({"resources": {"cpus": 0}}, "resources", "cpus must be a whole number"),
    "gpu-key": ({"resources": {"gpu": 1}}, "resources.gpu", "did you mean 'gpus'?"),
    "gpus": ({"resources": {"gpus": 2}}, "resources", "gpus is 2 but parallelism.num_replicas"),
    "no-budget": ({"budget": None}, "budget", f"{SECTION} of settings, not nothing (null)"),
    "no-samples": ({"budget": {}}, "budget.num_samples", "is missing: say how many trials"),
    "time": (
        {"budget": {"num_samples": 1, "time_budget_s": 0}},
        "budget.time_budget_s",
        "must be more than 0",
    ),
    "time-inf": (
        {"budget": {"num_samples": 1, "time_budget_s": float("inf")}},
        "budget.time_budget_s",
        "must be a finite number, not inf",
    ),
    "mlflow": ({"mlflow": {"uri": "x"}}, "mlflow.uri", "known are tracking_uri, experiment_name"),
    "uri": ({"mlflow": {"tracking_uri": 3}}, "mlflow.tracking_uri", "must be text, not 3: put"),
    "storage": ({"storage_path": None}, "storage_path", "must be text, not nothing"),
    "concurrent": ({"max_concurrent_trials": 0}, "max_concurrent_trials", "at least 1, not 0"),
    "actors": ({"reuse_actors": "true"}, "reuse_actors", "true or false, not 'true'"),
    "loop": ({"loop": "grpah"}, "loop", "must be 'graph' or 'fit', not 'grpah'; did you mean"),
    "unknown": (
        {"schedular": {}},
        "schedular",
        "unknown key; did you mean 'scheduler'?; known are",
    ),
}


@pytest.mark.parametrize(("changes", "where", "text"), BAD.values(), ids=BAD)
def test_a_bad_setting_is_told_with_its_place_and_what_is_allowed(changes, where, text):
    with pytest.raises(InvalidSettingsError, match=r"\w") as caught:
        SweepConfig.from_dict({**MINIMAL, **changes})
    (fault,) = caught.value.faults
    assert fault.where == where
    assert text in fault.what


def test_an_empty_mapping_lacks_what_has_no_default():
    with pytest.raises(InvalidSettingsError, match="5 faults") as caught:
        SweepConfig.from_dict({})
    missing = [fault.where for fault in caught.value.faults]
    assert missing == ["name", "workload", "objective", "space", "budget"]


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
    with pytest.raises(InvalidSettingsError, match=r"sweep.yaml: 10 faults") as caught:
        SweepConfig.from_yaml(path)
    assert [(fault.line, fault.where) for fault in caught.value.faults] == [
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
        pytest.param("", "sweep.yaml: 1 fault\n  is empty", id="empty"),
        pytest.param("- 1\n", "line 1: must be a mapping", id="list"),
        pytest.param("name: a\nb: [\n", "line 3: is not YAML", id="syntax"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(text, match, sweep):
    with pytest.raises(InvalidSettingsError, match=match):
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
        pytest.param("seed.x=1", "must be a whole number, not {'x': 1}", id="below-a-default"),
    ],
)
def test_a_bad_override_is_named(override, text, sweep):
    with pytest.raises(InvalidSettingsError, match="--set") as caught:
        SweepConfig.from_yaml(sweep(SWEEP), [override])
    assert caught.value.source == "--set"
    assert override in str(caught.value)
    assert text in str(caught.value)


def test_the_json_schema_knows_every_setting():
    schema = SweepConfig.json_schema()
    assert set(schema["properties"]) == set(SweepConfig.from_dict(MINIMAL).to_dict())
    assert schema["additionalProperties"] is False
    json.dumps(schema)


def test_the_json_schema_tells_schedulers_apart_by_their_name():
    schema = SweepConfig.json_schema()
    section = schema["properties"]["scheduler"]
    assert section["discriminator"]["propertyName"] == "name"
    kinds = {name: schema["$defs"][f"{name}Settings"] for name in ("Fifo", "Asha", "Pbt")}
    assert "required" not in kinds["Fifo"]
    assert kinds["Asha"]["required"] == ["name"]
    assert "grace_period" not in kinds["Pbt"]["properties"]


def test_all_faults_of_a_scheduler_are_told_at_once():
    scheduler = {"name": "pbt", "max_t": 3, "hard_stop": True, "sync": 1, "quantile_fraction": -1}
    with pytest.raises(InvalidSettingsError, match="4 faults") as caught:
        SweepConfig.from_dict({**MINIMAL, "scheduler": scheduler})
    assert {fault.where for fault in caught.value.faults} == {
        "scheduler.hard_stop",
        "scheduler.sync",
        "scheduler.quantile_fraction",
        "scheduler.perturbation_interval",
    }


def test_the_limit_of_a_scheduler_around_another_is_that_ones():
    scheduler = {"name": "resource_changing", "base": {"name": "asha", "max_t": 7}}
    assert SweepConfig.from_dict({**MINIMAL, "scheduler": scheduler}).scheduler.max_t == 7


def test_settings_load_no_framework():
    code = (
        "import sys, tune_tf.config; "
        "print({'ray', 'optuna', 'tensorflow', 'keras', 'mlflow'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


WORKLOADS = """\
from dataclasses import dataclass
from tune_tf.workload import Workload

class Mine(Workload):
    def load_data(self, config): ...
    def build_model(self, config): ...

@dataclass
class Sized(Mine):
    size: int

sized = Sized(3)
other = 5
"""


@pytest.fixture
def workloads(tmp_path, monkeypatch):
    """Return a folder with a file of workloads."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_workloads.py").write_text(WORKLOADS)
    (tmp_path / "broken_one.py").write_text("import no_such_module_at_all\n")
    yield tmp_path
    sys.modules.pop("my_workloads", None)


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        pytest.param("my_workloads.py:Mine", "Mine", id="class-of-a-file"),
        pytest.param("my_workloads.py:sized", "Sized", id="instance-of-a-file"),
        pytest.param("my_workloads:Mine", "Mine", id="class-of-a-module"),
    ],
)
def test_a_workload_is_imported(reference, kind, workloads):
    assert type(import_workload(reference, workloads)).__name__ == kind


@pytest.mark.parametrize(
    ("reference", "match"),
    [
        pytest.param("nowhere.py:Mine", "there is no file /.*/nowhere.py", id="no-file"),
        pytest.param("nowhere.at:Mine", "there is no module 'nowhere'; looked in", id="no-module"),
        pytest.param("broken_one.py:A", "raised ModuleNotFoundError: .*at_all", id="broken-file"),
        pytest.param("broken_one:A", "importing broken_one raised Mod.*at_all", id="broken-module"),
        pytest.param(
            "my_workloads.py:Mime",
            r"has no 'Mime'; did you mean 'Mine'\?; its workloads are Mine, Sized, sized",
            id="no-attribute",
        ),
        pytest.param("my_workloads.py:Sized", r"Sized\(\) raised TypeError", id="arguments"),
        pytest.param("my_workloads.py:other", "other is 5, which is no", id="no-workload"),
    ],
)
def test_a_workload_that_cannot_be_imported_says_why(reference, match, workloads):
    with pytest.raises(WorkloadError, match=match):
        import_workload(reference, workloads)


def test_a_workload_of_a_file_is_pickled_whole(workloads):
    cloudpickle = pytest.importorskip("cloudpickle")
    data = cloudpickle.dumps(import_workload("my_workloads.py:sized", workloads))
    (workloads / "my_workloads.py").unlink()
    code = "import sys, pickle; print(pickle.load(sys.stdin.buffer).size)"
    found = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=True
    )
    assert found.stdout.strip() == b"3"
