"""Every ready sweep file runs: each parallelism under ASHA, with TPE, tracked by MLflow."""

import shutil
from pathlib import Path
from typing import get_args

import pytest
from three_systems import assert_truth

from tune_tf import SweepConfig, run_sweep
from tune_tf.parallelism import Parallelism

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

FILES = sorted((Path(__file__).parents[2] / "search_spaces").glob("*.yaml"))
SHORT = ("budget.num_samples=3", "scheduler.max_t=3", "max_concurrent_trials=1")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_ready_sweep_runs_and_each_trial_ends_alike_in_three_systems(
    path, tmp_path, monkeypatch, empty_store
):
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    config = SweepConfig.from_yaml(path, SHORT)

    result = run_sweep(config)

    assert config.scheduler.name == "asha"
    trials = assert_truth(result.path)
    assert len(trials) == 3
    assert "completed" in {trial.reason for trial in trials.values()}
    assert 0 < result.best_value <= 1


def test_there_is_a_ready_sweep_for_each_parallelism():
    kinds = {SweepConfig.from_yaml(path).parallelism.kind for path in FILES}

    assert kinds == {each.kind for each in get_args(Parallelism)}
