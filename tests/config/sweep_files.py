"""Settings that the tests of this folder start from, and what is wrong with a change of them."""

import pytest

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError

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
searcher:    {sampler: tpe}
epochs:      27
scheduler:   {name: asha, grace_period: 1, reduction_factor: 3}
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


def error_of(changes):
    """Return the one error of the smallest settings with some changes."""
    with pytest.raises(InvalidSettingsError, match=r"\w") as caught:
        SweepConfig.from_dict({**MINIMAL, **changes})
    (error,) = caught.value.details
    return error
