"""What has to be true of a population, whose trials take over others' weights and configs."""

import math
from typing import TYPE_CHECKING

from checks import check
from virtual_cluster import METRIC, past_after, value_of
from virtual_store import StoredRun

from tune_tf.outcome import Outcome
from tune_tf.record import RecordedResult, RecordedTrial, SweepHistory, trial_results

if TYPE_CHECKING:
    from sweep_life import SimulatedSweep


def assert_population(
    sweep: "SimulatedSweep", history: SweepHistory, runs: dict[str, StoredRun]
) -> None:
    """Assert that each trial trained on from weights that there were, with the config it names."""
    results = {
        key: trial_results(sweep.folder.path, trial.number) for key, trial in history.trials.items()
    }
    states: dict[int, set[float]] = {0: {0.0}}
    for rows in results.values():
        for row in rows:
            states.setdefault(_epoch(row), set()).add(row.metrics["past"])
    for key, trial in history.trials.items():
        check(trial.outcome not in (None, Outcome.INTERRUPTED), f"{key} has not ended")
        _check_trial(trial, results[key], states)
        if trial.outcome is Outcome.COMPLETED:
            check(_epoch(results[key][-1]) == sweep.config.epochs, f"{key} has not run in full")
        if key in runs:
            assert trial.outcome is not None
            _check_run(runs[key], trial, results[key])


def _epoch(row: RecordedResult) -> int:
    return int(row.metrics["training_iteration"])


def _check_trial(
    trial: RecordedTrial, rows: list[RecordedResult], states: dict[int, set[float]]
) -> None:
    config = trial.suggested
    before: RecordedResult | None = None
    for row in rows:
        config, epoch, value = row.config or config, _epoch(row), row.metrics[METRIC]
        if not math.isnan(value):
            right = math.isclose(value, value_of(dict(config), epoch))
            check(right, f"{trial.trial_id} has another config than {config} at {row}")
            pasts = states.get(epoch - 1, set())
            known = any(
                math.isnan(past) or math.isclose(past_after(past, value), row.metrics["past"])
                for past in pasts
            )
            check(known, f"{trial.trial_id} trained on from weights that nobody had: {row}")
        if before is not None:
            is_next = epoch <= _epoch(before) + 1 or row.exploits > before.exploits
            check(is_next, f"{trial.trial_id} has gone from {before} to {row}")
            check(row.exploits >= before.exploits, f"{trial.trial_id} forgot a clone at {row}")
        before = row


def _check_run(run: StoredRun, trial: RecordedTrial, rows: list[RecordedResult]) -> None:
    """Check that MLflow has each result once, and the end."""
    first: dict[tuple[int, int], float] = {}
    for row in rows:
        first.setdefault((row.exploits, _epoch(row)), row.metrics[METRIC])
    wanted = [(step, repr(value)) for (_, step), value in first.items()]
    found = [(point.step, repr(point.value)) for point in run.history(METRIC)]
    check(sorted(found) == sorted(wanted), f"MLflow has {found} of {trial.trial_id}, not {wanted}")
    assert trial.outcome is not None
    check(run.status == trial.outcome.mlflow, f"MLflow has {run.status} for {trial}")
