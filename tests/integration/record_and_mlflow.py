"""What the record and MLflow say of the trials of a sweep's folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.outcome import Outcome
from tune_tf.record import RecordedTrial, SweepHistory, trial_results
from tune_tf.sweep_folder import SweepFolder


@dataclass(frozen=True)
class Seen:
    """One trial in both."""

    recorded: RecordedTrial
    epochs: tuple[int, ...]  # in the record, in order
    mlflow: str
    reason: str
    steps: tuple[int, ...]  # in MLflow


def seen_in(folder: Path) -> dict[str, Seen]:
    """Return the states of each trial that was started.

    Asserts that each trial stands once in both; MLflow has no run of one that never started.
    """
    trials = SweepHistory.read(folder).trials
    runs = _mlflow(folder)
    assert set(runs) <= set(trials)
    for trial_id in set(trials) - set(runs):
        assert not trials[trial_id].last, trial_id
    return {
        trial_id: Seen(trials[trial_id], _epochs(folder, trials[trial_id].number), *run)
        for trial_id, run in runs.items()
    }


def _epochs(folder: Path, number: int) -> tuple[int, ...]:
    results = trial_results(folder, number)
    return tuple(int(result.metrics["training_iteration"]) for result in results)


def assert_truth(folder: Path) -> dict[str, Seen]:
    """Assert that every trial has ended, and that record and MLflow have the same of it."""
    assert all(trial.state == "ended" for trial in SweepHistory.read(folder).trials.values())
    trials = seen_in(folder)
    for trial in trials.values():
        outcome = trial.recorded.outcome
        assert outcome is not None
        assert (trial.reason, trial.mlflow) == (outcome.value, outcome.mlflow), trial
        assert set(trial.steps) == set(trial.epochs), trial
        if not trial.recorded.exploits:  # else it goes on from where the other trial stood
            assert trial.steps == tuple(range(1, len(trial.steps) + 1)), trial
    return trials


def assert_stopped(folder: Path) -> dict[str, Seen]:
    """Assert that a sweep that was interrupted says so of its trials, wherever one looks."""
    trials = seen_in(folder)
    for trial in trials.values():
        assert trial.mlflow != "RUNNING"
        is_interrupted = trial.recorded.outcome is Outcome.INTERRUPTED
        assert (trial.reason == "interrupted") == is_interrupted
    return trials


def parent_run(folder: Path) -> Any:
    """Return the sweep's parent run; asserts that there is one."""
    runs = [run for run in _runs(folder) if "mlflow.parentRunId" not in run.data.tags]
    assert len(runs) == 1
    return runs[0]


def _mlflow(folder: Path) -> dict[str, tuple[str, str, tuple[int, ...]]]:
    client = _client(folder)
    parent = parent_run(folder)
    found = {}
    for run in _runs(folder):
        if run.info.run_id == parent.info.run_id:
            continue
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        trial_id = run.data.tags["tune_tf.trial_id"]
        assert trial_id not in found
        history = client.get_metric_history(run.info.run_id, "loss")
        steps = tuple(metric.step for metric in history)
        reason = run.data.tags.get("tune_tf.stop_reason", "")
        found[trial_id] = (run.info.status, reason, steps)
    return found


def _runs(folder: Path) -> list[Any]:
    client = _client(folder)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    wanted = f"tags.`tune_tf.sweep_id` = '{folder.name}'"
    return list(client.search_runs(experiments, wanted, max_results=50_000))


def _client(folder: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(SweepFolder.open(folder).tracking_uri)
