"""SweepConfig: the schema of a sweep file and its errors."""

import json
import pickle
import subprocess
import sys

import pytest
from sweep_files import MINIMAL, SWEEP, error_of

from tune_tf.config import (
    BudgetSettings,
    MLflowSettings,
    SearcherSettings,
    SweepConfig,
)
from tune_tf.config.scheduler_settings import AshaSettings
from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.space import Choice, Float, Int, SearchSpace


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
        "data": None,
        "leading_metric": None,
        "constraints": {},
        "seed": 5,
        "reproducible": False,
        "slots": 16,
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
        "epochs": 100,
        "scheduler": {"name": "fifo"},
        "parallelism": {
            "kind": "mirrored",
            "num_replicas": 1,
            "synchronized_batch_norm": False,
            "micro_batches": 1,
            "uneven": "split",
        },
        "resources": None,
        "budget": {
            "num_samples": 4,
            "time_budget_s": None,
            "epochs": None,
            "cpu_hours": None,
            "gpu_hours": None,
            "target": None,
            "patience": None,
        },
        "mlflow": {
            "tracking_uri": "sqlite:///mlflow.db",
            "experiment_name": "small",
            "system_metrics": True,
            "log_best_model": True,
            "register_best": None,
            "best_alias": "champion",
        },
        "tensorboard": False,
        "storage_path": "./sweeps",
        "cluster": {"address": None, "runtime_env": None},
        "max_concurrent_trials": None,
        "max_failures": 0,
        "oom_retries": 2,
        "reuse_actors": True,
        "loop": "graph",
        "share_frozen": True,
        "checkpoint_interval_s": 10.0,
        "keep": "last",
        "keep_checkpoints": 5,
        "min_free_disk": 10**9,
    }


VARIANTS = {
    "minimal": {},
    "no-tracking": {"mlflow": None},
    "limits": {"budget": {"num_samples": 4, "epochs": 9, "cpu_hours": 0.5, "target": -1.5}},
    "a-cluster": {"cluster": {"address": "auto", "runtime_env": {"pip": ["a"], "env_vars": {}}}},
    "workers": {
        "parallelism": {"kind": "multi_worker", "num_workers": 2, "placement": "strict_spread"}
    },
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
    "gpu-type": {
        "resources": {"gpus": 1, "accelerator_type": "H100", "custom": {"fast_disk": 1}},
    },
    "random": {"searcher": {"sampler": "random", "storage": "sqlite:///optuna.db"}},
    "objectives": {
        "objective": [{"metric": "a", "mode": "min"}, {"metric": "b", "mode": "max"}],
    },
    "constraints": {"constraints": {"params": ["<= 2e6", ">= 9"], "accuracy": ">= 0.25"}},
    "points": {
        "searcher": {"points_to_evaluate": [{"learning_rate": 0.5, "group": {"a": [1, 2]}}]},
    },
    "data": {"data": {"path": "wine.csv", "columns": ["a", "b"], "more": {"c": 1}}},
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
    "objective-text": ({"objective": "loss"}, "objective", "write `{metric: loss, mode: min}`"),
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
    "data-list": ({"data": ["a"]}, "data", "must be a mapping of the workload's settings"),
    "data-key": ({"data": {3: 1}}, "data", "must have names as keys, not 3"),
    "seed-text": ({"seed": "7"}, "seed", "must be an integer, not '7': write it without quotes"),
    "seed-bool": ({"seed": True}, "seed", "must be an integer, not True"),
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
    "kind": (
        {"parallelism": {"kind": "miror"}},
        "parallelism.kind",
        "one of 'mirrored', 'multi_worker', ",
    ),
    "replicas": ({"parallelism": {"num_replicas": 0}}, "parallelism", "not 0"),
    "rows": (
        {"parallelism": {"num_replicas": 3}},
        "parallelism",
        "has 3 replicas but space.batch_size goes down to 2",
    ),
    "rows-of-workers": (
        {"parallelism": {"kind": "multi_worker", "num_workers": 3}},
        "parallelism",
        "has 3 replicas but space.batch_size goes down to 2",
    ),
    "key-of-workers": (
        {"parallelism": {"kind": "multi_worker", "num_replicas": 2}},
        "parallelism.num_replicas",
        "unknown key",
    ),
    "workers": (
        {"parallelism": {"kind": "multi_worker", "num_workers": 1}},
        "parallelism",
        "num_workers must be an integer of at least 2",
    ),
    "cpus": ({"resources": {"cpus": 0}}, "resources", "cpus must be an integer"),
    "gpu-type": (
        {"resources": {"accelerator_type": 100}},
        "resources",
        "a type as Ray names it, like H100, not 100",
    ),
    "gpu-key": ({"resources": {"gpu": 1}}, "resources.gpu", "write `gpus: 1`"),
    "gpus": ({"resources": {"gpus": 2}}, "resources", "gpus is 2 but the trial has 1 replica"),
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
    "mlflow": (
        {"mlflow": {"uri": "x"}},
        "mlflow.uri",
        "known keys are tracking_uri, experiment_name",
    ),
    "uri": ({"mlflow": {"tracking_uri": 3}}, "mlflow.tracking_uri", "must be text, not 3: put"),
    "storage": ({"storage_path": None}, "storage_path", "must be text, not nothing"),
    "concurrent": ({"max_concurrent_trials": 0}, "max_concurrent_trials", "at least 1, not 0"),
    "actors": ({"reuse_actors": "true"}, "reuse_actors", "true or false, not 'true'"),
    "loop": ({"loop": "grpah"}, "loop", "must be 'graph' or 'fit', not 'grpah'; did you mean"),
    "unknown": (
        {"schedular": {}},
        "schedular",
        "unknown key; did you mean 'scheduler'?; known keys are",
    ),
}


@pytest.mark.parametrize(("changes", "where", "text"), BAD.values(), ids=BAD)
def test_a_bad_setting_is_told_with_its_place_and_what_is_allowed(changes, where, text):
    error = error_of(changes)
    assert error.where == where
    assert text in error.what


def test_an_empty_mapping_lacks_what_has_no_default():
    with pytest.raises(InvalidSettingsError, match="5 errors") as caught:
        SweepConfig.from_dict({})
    missing = [error.where for error in caught.value.details]
    assert missing == ["name", "workload", "objective", "space", "budget"]


def test_the_json_schema_knows_every_setting():
    schema = SweepConfig.json_schema()
    assert set(schema["properties"]) == set(SweepConfig.from_dict(MINIMAL).to_dict())
    assert schema["additionalProperties"] is False
    json.dumps(schema)


def test_settings_load_no_framework():
    code = (
        "import sys, tune_tf.config; "
        "print({'ray', 'optuna', 'tensorflow', 'keras', 'mlflow'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
