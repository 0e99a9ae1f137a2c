"""SweepConfig: the schema of a sweep file and its errors."""

import json
import pickle
import subprocess
import sys

import pytest
from sweep_files import MINIMAL, SWEEP

from tune_tf.config import (
    BudgetSettings,
    MLflowSettings,
    SearcherSettings,
    SweepConfig,
)
from tune_tf.config.scheduler_settings import AshaSettings
from tune_tf.objective import Objective
from tune_tf.parallelism import Mirrored
from tune_tf.resources import TrialResources
from tune_tf.space import Choice, Float, SearchSpace
from tune_tf.space.document import YamlDocument


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
    assert config.searcher == SearcherSettings(sampler="tpe")
    assert config.scheduler == AshaSettings(epochs=27, grace_period=1, reduction_factor=3)
    assert config.parallelism == Mirrored(2)
    assert config.resources == TrialResources(2, 0)
    assert config.budget == BudgetSettings(num_samples=32, time_budget_s=3600)
    assert config.mlflow == MLflowSettings(experiment_name="digits")


DEFAULTS = """\
space: {learning_rate: {uniform: [0.0, 1.0]}, batch_size: {choice: [2, 4]}}
data: null
constraints: {}
seed: 5
reproducible: false
slots: 16
searcher: {sampler: tpe, arguments: {}, storage: null, study_name: null,
  points_to_evaluate: [], warm_start_from: null}
epochs: 100
scheduler: {name: fifo}
parallelism: {kind: mirrored, num_replicas: 1, synchronized_batch_norm: false, micro_batches: 1}
resources: null
budget: {num_samples: 4, time_budget_s: null, epochs: null, cpu_hours: null, gpu_hours: null,
  target: null, patience: null}
mlflow: {tracking_uri: "sqlite:///mlflow.db", experiment_name: small, system_metrics: true,
  log_best_model: true, register_best: null, best_alias: champion}
tensorboard: false
storage_path: ./sweeps
cluster: {address: null, runtime_env: null}
max_concurrent_trials: null
max_failures: 0
oom_retries: 2
reuse_actors: true
loop: graph
share_frozen: true
checkpoint_interval_s: 10.0
keep: last
keep_checkpoints: 5
min_free_disk: 1000000000
"""


def test_what_is_left_out_has_defaults():
    config = SweepConfig.from_dict({**MINIMAL, "seed": 5})
    assert config.to_dict() == {**MINIMAL, **YamlDocument.parse(DEFAULTS).data}


VARIANTS = {
    "minimal": {},
    "no-tracking": {"mlflow": None},
    "limits": {"budget": {"num_samples": 4, "epochs": 9, "cpu_hours": 0.5, "target": -1.5}},
    "a-cluster": {"cluster": {"address": "auto", "runtime_env": {"pip": ["a"], "env_vars": {}}}},
    "workers": {
        "parallelism": {"kind": "multi_worker", "num_workers": 2, "placement": "strict_spread"}
    },
    "asha": {"scheduler": {"name": "asha", "grace_period": 3}},
    "hyperband": {"scheduler": {"name": "HyperBandScheduler", "reduction_factor": 2}},
    "median": {"scheduler": {"name": "MedianStoppingRule", "hard_stop": False}},
    "pbt": {"scheduler": {"name": "pbt", "perturbation_factors": [2, 0.5]}},
    "pb2": {"scheduler": {"name": "pb2", "mutations": ["learning_rate"]}},
    "resources": {"resources": {"cpus": 2, "gpus": 0.5}},
    "gpu-type": {
        "resources": {"gpus": 1, "accelerator_type": "H100", "custom": {"fast_disk": 1}},
    },
    "arguments": {"searcher": {"sampler": "NSGAIISampler", "arguments": {"population_size": 9}}},
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


def test_the_first_of_several_objectives_leads():
    loss, accuracy = Objective("loss", "min"), Objective("accuracy", "max")
    config = SweepConfig.from_dict({**MINIMAL, "objective": [loss, accuracy]})
    assert config.objectives == (loss, accuracy)
    assert config.leading_objective == loss


def test_a_list_of_one_objective_is_that_objective():
    listed = SweepConfig.from_dict({**MINIMAL, "objective": [MINIMAL["objective"]]})
    assert listed == SweepConfig.from_dict(MINIMAL)


def test_settings_load_no_framework():
    code = (
        "import sys, tune_tf.config; "
        "print({'ray', 'optuna', 'tensorflow', 'keras', 'mlflow'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
