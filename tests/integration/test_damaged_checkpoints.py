"""Checkpoints that are damaged while their sweep runs: it costs epochs, not trials."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf import SweepConfig, run_sweep
from tune_tf.outcome import Outcome
from tune_tf.record import SweepHistory, recorded_results

pytestmark = [pytest.mark.cluster, pytest.mark.tf, pytest.mark.slow]

NUM_EPOCHS = 8


def run(tmp_path, damage, **settings):
    """Run a sweep of short trials; return its trials by number, with the epochs in order."""
    given = {
        "name": "damaged",
        "workload": "tune_tf.workloads.digits:DigitsMLP",
        "objective": {"metric": "val_accuracy", "mode": "max"},
        "space": {"learning_rate": {"loguniform": [1e-4, 1e-1]}, "width": 16, "batch_size": 128},
        "epochs": NUM_EPOCHS,
        "scheduler": {"name": "fifo"},
        "resources": {"cpus": 1},
        "budget": {"num_samples": 1},
        "max_concurrent_trials": 1,
        "checkpoint_interval_s": 0,
        "max_failures": 1,
        "mlflow": None,
        "storage_path": str(tmp_path),
    }
    result = run_sweep(SweepConfig.from_dict(given | settings), callbacks=[damage])
    trials = SweepHistory.read(result.path).trials.values()
    epochs = {
        trial.number: [
            each["training_iteration"] for each in recorded_results(result.path, trial.number)
        ]
        for trial in trials
    }
    return trials, epochs


def cut(folder):
    file = folder / "trial.npz"
    file.write_bytes(file.read_bytes()[:1000])


def lose_all(folder):
    for each in folder.parent.glob("checkpoint_*"):
        shutil.rmtree(each)


class KillsTrial(Callback):
    """Damages the checkpoint of epoch 4 as soon as it is written, and kills the trial's process."""

    def __init__(self, damage):
        self._damage = damage

    def on_trial_save(self, trial, **info):
        saved = trial.latest_checkpoint_result
        if self._damage and saved.metrics["training_iteration"] == 4:
            self._damage(Path(saved.checkpoint.path))
            self._damage = None
            os.kill(trial.last_result["pid"], signal.SIGKILL)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("damage", "goes_on_at"), [(cut, 4), (lose_all, 1)])
def test_a_trial_that_is_killed_goes_on_though_its_newest_checkpoint_is_damaged(
    damage, goes_on_at, tmp_path
):
    (trial,), epochs = run(tmp_path, KillsTrial(damage))

    assert (trial.outcome, trial.failures) == (Outcome.COMPLETED, 1)
    again = [*range(goes_on_at, NUM_EPOCHS + 1)]
    assert epochs[0] in ([*range(1, 5), *again], [*range(1, 6), *again])


class LosesPaused(Callback):
    """Removes the checkpoint of each trial when it is first paused."""

    def __init__(self):
        self.lost = set()

    def on_step_end(self, trials, **info):
        for trial in trials:
            saved = trial.latest_checkpoint_result
            if trial.status == Trial.PAUSED and saved and trial not in self.lost:
                self.lost.add(trial)
                shutil.rmtree(saved.checkpoint.path)


@pytest.mark.usefixtures("ray_cluster")
def test_a_paused_trial_without_its_checkpoint_starts_over_and_has_not_failed(tmp_path):
    trials, epochs = run(
        tmp_path,
        LosesPaused(),
        scheduler={"name": "HyperBandForBOHB", "reduction_factor": 2},
        budget={"num_samples": 6},
        max_concurrent_trials=2,
        checkpoint_interval_s=600,
        max_failures=0,
    )

    assert all(trial.failures == 0 for trial in trials)
    assert {trial.outcome for trial in trials} <= {Outcome.COMPLETED, Outcome.PRUNED}
    assert {each.count(1) for each in epochs.values()} == {1, 2}
