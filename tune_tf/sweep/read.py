"""What a sweep found, read from its folder: nothing is run, and no cluster is started."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ray import tune
from ray.tune.experiment import Trial

from tune_tf.errors import UnknownTrialError, near_ones
from tune_tf.folder import SweepFolder
from tune_tf.outcome import Outcome
from tune_tf.results import SweepResult, TrialResult
from tune_tf.sweep.trial_results import trial_name, trial_result
from tune_tf.tracking.ending import of_trial
from tune_tf.tracking.endings import error_of, last_report

_MOST_NAMED = 8


def read_sweep(sweep: str | Path, *, storage_path: str | Path = "sweeps") -> SweepResult:
    """Return what a sweep has found so far.

    Args:
        sweep: The sweep's folder, its id, or its name for the latest sweep of that name.
        storage_path: Where sweeps are looked for by id or name.

    Raises:
        UnknownSweepError: There is no such sweep.
    """
    folder = SweepFolder.open(sweep, storage_path)
    trials: list[Trial] = []
    if folder.was_snapshot:
        with _without_warnings():
            trials = tune.ExperimentAnalysis(str(folder.path)).trials
    results = (_result(folder, trial) for trial in trials)
    return SweepResult(
        sweep_id=folder.sweep_id,
        path=folder.path,
        config=folder.config,
        base_dir=folder.base_dir,
        trials=tuple(sorted(results, key=lambda result: result.number)),
    )


def trial_named(result: SweepResult, name: str) -> TrialResult:
    """Return a trial by its id, a beginning of it that no other has, or its number.

    Raises:
        UnknownTrialError: There is none, or there are several; names near ones.
    """
    for trial in result.trials:
        if name in (trial.trial_id, str(trial.number), f"trial_{trial.number:05d}"):
            return trial
    alike = [trial for trial in result.trials if name and trial.trial_id.startswith(name)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise UnknownTrialError(
            f"{name!r} is the beginning of {len(alike)} trials' ids in {result.sweep_id}: "
            f"{_named(alike)}; write more of it"
        )
    known = [trial.trial_id for trial in result.trials]
    there = f"there are {_named(result.trials)}" if known else "none has been started"
    raise UnknownTrialError(
        f"{result.sweep_id} has no trial {name!r}{near_ones(name, known)}; {there}"
    )


def _named(trials: "tuple[TrialResult, ...] | list[TrialResult]") -> str:
    told = ", ".join(f"{trial.number} ({trial.trial_id})" for trial in trials[:_MOST_NAMED])
    return told + (", ..." if len(trials) > _MOST_NAMED else "")


def _result(folder: SweepFolder, trial: Trial) -> TrialResult:
    found = trial_result(
        trial, _outcome(trial), folder.config.constraints, folder.config.objectives
    )
    if found.checkpoint is None or found.checkpoint.is_dir():
        return found
    # Tune keeps the whole path, of where the sweep's folder was when it ran.
    here = folder.path / trial_name(trial) / found.checkpoint.name
    return replace(found, checkpoint=here if here.is_dir() else None)


def _outcome(trial: Trial) -> Outcome | None:
    if not trial.is_finished():
        return None
    error = error_of(trial) if trial.status == Trial.ERROR else None
    last = last_report(trial)
    if error is None and (stamped := Outcome.of_result(last)):
        return stamped
    return of_trial("completed", last, status=trial.status, error=error)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep Tune from warning of trials that have no results yet."""
    logger = logging.getLogger("ray.tune.analysis.experiment_analysis")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
