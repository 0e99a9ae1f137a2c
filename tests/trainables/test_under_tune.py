"""Trainables under Ray Tune, with Ray's own searchers, schedulers and callbacks beside them."""

import os
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch

from tune_tf.trainables import trainable
from tune_tf.trainables.memory import recycling
from tune_tf.trainables.memory.recycling import ActorRecycler
from tune_tf.workloads.digits import DigitsMLP

pytestmark = [pytest.mark.tf, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def run(ray_cluster, tmp_path):
    """Return a function that runs a sweep quietly and returns its trials."""

    def run(what, **arguments):
        given = {"storage_path": str(tmp_path), "verbose": 0, "reuse_actors": True}
        return tune.run(what, **(given | arguments)).trials

    return run


@pytest.fixture
def mlflow():
    """MLflow, whose store of the process Ray's callback sets; it is unset afterwards."""
    import mlflow

    with mock.patch.dict(os.environ):
        yield mlflow
    mlflow.set_tracking_uri(None)
    mlflow.set_registry_uri(None)


def test_optuna_asha_and_mlflow_of_ray_run_clean(run, tmp_path, mlflow):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    trials = run(
        trainable(DigitsMLP, seed=1),
        config={
            "learning_rate": tune.loguniform(1e-4, 1e-1),
            "dropout": tune.uniform(0.1, 0.5),
            "width": tune.choice([8, 16]),
            "batch_size": 128,
        },
        metric="val_accuracy",
        mode="max",
        num_samples=4,
        search_alg=ConcurrencyLimiter(OptunaSearch(seed=0), max_concurrent=2),
        scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2),
        callbacks=[MLflowLoggerCallback(tracking_uri=uri, experiment_name="digits")],
    )

    assert [trial.status for trial in trials] == ["TERMINATED"] * 4
    assert all(0 < trial.last_result["val_accuracy"] <= 1 for trial in trials)
    assert len({trial.last_result["pid"] for trial in trials}) <= 2, "actors were not reused"
    mlflow.set_tracking_uri(uri)
    assert set(mlflow.search_runs(experiment_names=["digits"]).status) == {"FINISHED"}


def test_population_based_training_exploits_checkpoints(run):
    trials = run(
        trainable(DigitsMLP, seed=1),
        config={"learning_rate": tune.grid_search([1e-6, 1e-2]), "width": 8, "batch_size": 128},
        metric="val_accuracy",
        mode="max",
        stop={"training_iteration": 6},
        scheduler=PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=2,
            hyperparam_mutations={"learning_rate": tune.loguniform(1e-3, 1e-1)},
            quantile_fraction=0.5,
            synch=True,
        ),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=4, checkpoint_frequency=1),
        max_concurrent_trials=2,
    )

    ends = [(trial.status, trial.last_result) for trial in trials]
    assert [status for status, _ in ends] == ["TERMINATED"] * 2, ends
    assert max(last["training_iteration"] for _, last in ends) == 6, ends
    loser = next(trial for trial in trials if trial.evaluated_params["learning_rate"] == 1e-6)
    assert loser.config["learning_rate"] >= 1e-3, "nothing was exploited"
    assert loser.last_result["val_accuracy"] > 0.2, "it did not go on from the donor's weights"


def test_a_process_serves_as_many_structures_as_it_may(run):
    class TwoPrograms(DigitsMLP):
        def build_model(self, config):
            recycling.MAX_PROGRAMS = 2
            return super().build_model(config)

    trials = run(
        trainable(TwoPrograms, seed=1),
        config={"width": tune.grid_search([2, 3, 4, 5, 6]), "batch_size": 512},
        stop={"training_iteration": 1},
        callbacks=[ActorRecycler()],
        max_concurrent_trials=1,
    )

    assert np.isfinite([trial.last_result["loss"] for trial in trials]).all()
    served = Counter(trial.last_result["pid"] for trial in trials)
    assert sorted(served.values()) == [1, 2, 2]
