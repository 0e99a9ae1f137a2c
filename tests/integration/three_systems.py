"""What Tune, Optuna and MLflow say of the trials of a sweep's folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from tune_tf.outcome import Outcome
from tune_tf.record import SweepHistory
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID
from tune_tf.sweep.plan import make_searcher
from tune_tf.sweep.storage import SweepStorage
from tune_tf.sweep_folder import SweepFolder


@dataclass(frozen=True)
class Seen:
    """One trial in the three systems."""

    tune: str
    optuna: str
    mlflow: str
    reason: str
    steps: tuple[int, ...]
    changed_at: int | None = None


def seen_in(folder: Path) -> dict[str, Seen]:
    """Return the states of each trial that was started.

    Asserts that each trial stands once in each system; MLflow has no run of one that was proposed
    but never started.
    """
    tune = in_tune(folder)
    optuna_study = study_of(folder)
    study = {trial.user_attrs[TUNE_TRIAL_ID]: trial for trial in optuna_study.trials}
    assert len(study) == len(optuna_study.trials)
    runs = _mlflow(folder)
    assert sorted(tune) == sorted(study)
    assert set(runs) <= set(tune)
    for trial_id in set(tune) - set(runs):
        assert tune[trial_id] == "PENDING" or _never_began(study[trial_id]), trial_id
    return {
        trial_id: Seen(
            tune[trial_id],
            study[trial_id].state.name,
            status,
            reason,
            steps,
            study[trial_id].user_attrs.get("config_changed_at"),
        )
        for trial_id, (status, reason, steps) in runs.items()
    }


def assert_truth(folder: Path) -> dict[str, Seen]:
    """Assert that every trial has ended, and stands in one state in the three systems."""
    trials = seen_in(folder)
    never_began = [trial for trial in study_of(folder).trials if _never_began(trial)]
    assert len(trials) >= len(in_tune(folder)) - len(never_began)
    for trial in trials.values():
        outcome = Outcome(trial.reason)
        stopped_at_once = outcome is Outcome.OUT_OF_BUDGET and not trial.steps
        assert (trial.tune, trial.optuna, trial.mlflow) == (
            outcome.tune,
            "FAIL" if stopped_at_once else outcome.optuna,  # Optuna has nothing to learn of it
            outcome.mlflow,
        ), trials
        last = trial.changed_at or max(trial.steps, default=0)
        assert trial.steps[:last] == tuple(range(1, last + 1)), trials
        if trial.changed_at is None:  # else it goes on from where the other trial stood
            assert len(trial.steps) == last, trials
    return trials


def _never_began(trial: optuna.trial.FrozenTrial) -> bool:
    """Return whether the budget ended a trial before it reported anything."""
    reason = trial.user_attrs.get("stop_reason")
    return reason == Outcome.OUT_OF_BUDGET.value and not trial.intermediate_values


def in_tune(folder: Path) -> dict[str, str]:
    """Return the state of each trial that Tune knows."""
    there = sorted(folder.glob("experiment_state-*.json"))
    text = there[-1].read_bytes() if there else _state_stored_elsewhere(folder)
    states = [json.loads(trial) for trial, _ in json.loads(text)["trial_data"]]
    assert len({state["trial_id"] for state in states}) == len(states)
    return {state["trial_id"]: state["status"] for state in states}


def _state_stored_elsewhere(folder: Path) -> bytes:
    storage = SweepStorage.of(folder, SweepFolder.open(folder).config)
    return storage.read(max(storage.files("experiment_state-*.json")))


def study_of(folder: Path) -> optuna.Study:
    """Return the sweep's study, as a resume makes it from the record."""
    return make_searcher(SweepFolder.open(folder), SweepHistory.read(folder)).study


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

    return MlflowClient(f"sqlite:///{folder.parent.parent / 'mlflow.db'}")
