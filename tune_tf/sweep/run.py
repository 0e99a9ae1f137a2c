"""Running, resuming and extending sweeps."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import tune

from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, note_interrupt
from tune_tf.record import Record
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.results import SweepResult
from tune_tf.sweep.cluster import cluster, runs_as_user
from tune_tf.sweep.config_diff import (
    NOT_EXTENDABLE,
    changes_between,
    check_changes,
    extended_budget,
)
from tune_tf.sweep.plan import check_settings, make_searcher, plan_sweep
from tune_tf.sweep.resume import Resume
from tune_tf.sweep.runner import run_trials
from tune_tf.sweep.storage import SweepStorage
from tune_tf.sweep.sweep_result import finished_result
from tune_tf.sweep_folder import SweepFolder


def run_sweep(
    config: SweepConfig,
    *,
    base_dir: str | Path | None = None,
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Run a sweep until it ends or Ctrl-C interrupts it.

    If no Ray cluster is connected, a local one is started and shut down; the section ``cluster`` of
    the settings, ``RAY_ADDRESS`` or ``ray.init`` select another one.

    Args:
        config: The sweep's settings.
        base_dir: Folder that a relative workload path starts from; the working directory by
            default.
        callbacks: Additional Tune callbacks, called after the sweep's own.

    Returns:
        The result; ``interrupted`` says whether the sweep can be resumed.

    Raises:
        TuneTfError: Settings, workload or cluster are invalid; raised before any trial starts.
    """
    base_dir = Path(base_dir or Path.cwd())
    workload = check_settings(config, base_dir)  # before the seconds that a cluster takes
    with cluster(config.cluster, base_dir):
        plan = plan_sweep(config, base_dir=base_dir, workload=workload)
        folder = SweepFolder.create(plan.config, base_dir, private=runs_as_user())
        with _note_resume(folder), Record(folder.path) as record:
            record.begin_session(config.budget.model_dump())
            nothing = Resume(SweepStorage.of(folder.path, config))
            return run_trials(folder, plan, record, nothing, callbacks)


def resume_sweep(
    path: str | Path,
    *,
    storage_path: str | Path = "sweeps",
    allow_changes: bool = False,
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Resume an interrupted or killed sweep.

    Ended trials do not run again; running ones resume from their last checkpoint. If no trial
    remains, a missing report or best model is written. A finished sweep remains unchanged. Warnings
    report data lost in damaged files.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        storage_path: Folder that is searched for ids and names.
        allow_changes: Whether to apply edits of the folder's ``sweep.yaml``.
        callbacks: Additional Tune callbacks, as many as at the start.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: It is still running, its settings were edited, or it has no intact
            state.
        TuneTfError: As for :func:`run_sweep`.
    """
    folder = SweepFolder.open(path, storage_path)
    finished = finished_result(folder)
    if finished is not None:
        return finished
    return _resume(folder, callbacks, allow_changes=allow_changes)


def extend_sweep(
    path: str | Path,
    budget: Mapping[str, Any],
    *,
    storage_path: str | Path = "sweeps",
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Continue an ended or interrupted sweep with a larger budget.

    Ended trials do not run again, not even those that the old budget stopped.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        budget: Limits by name, as in the section ``budget`` of a sweep file: a number or None
            replaces the limit, text like ``"+20"`` adds to it.
        storage_path: Folder that is searched for ids and names.
        callbacks: Additional Tune callbacks, as many as at the start.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: It is still running.
        InvalidSettingsError: The budget is invalid or would not change.
        TuneTfError: As for :func:`run_sweep`.
    """
    folder = SweepFolder.open(path, storage_path)
    return _resume(folder, callbacks, budget=budget)


def _resume(
    folder: SweepFolder,
    callbacks: Sequence[tune.Callback],
    *,
    allow_changes: bool = False,
    budget: Mapping[str, Any] | None = None,
) -> SweepResult:
    with _note_resume(folder), Record(folder.path) as record:
        config = folder.edited() or folder.config
        changes = changes_between(folder.config, config)
        if changes:
            check_changes(folder.sweep_id, changes, config, allowed=allow_changes)
        if budget is not None:
            if config.reproducible:
                raise InvalidSettingsError(NOT_EXTENDABLE)
            trials = record.history.trials.values()
            num_epochs = sum(int(trial.last.get(TRAINING_ITERATION, 0)) for trial in trials)
            larger = extended_budget(
                config.budget, budget, num_trials=len(trials), num_epochs=num_epochs
            )
            config = config.model_copy(update={"budget": larger})
        # What the folder tells is refused before the seconds that a cluster takes.
        resume = Resume.read(folder.path, config)
        workload = check_settings(config, folder.base_dir, folder.path)
        searcher = make_searcher(replace(folder, config=config), resume.history)
        with cluster(config.cluster, folder.base_dir):
            plan = plan_sweep(config, base_dir=folder.base_dir, workload=workload)
            if config is not folder.config:
                folder = folder.with_config(config)
            folder = folder.at_home()
            record.begin_session(config.budget.model_dump())
            resume.clean_up(record)
            return run_trials(folder, plan, record, resume, callbacks, searcher)


def _note_resume(folder: SweepFolder) -> contextlib.AbstractContextManager[None]:
    return note_interrupt(f"resume the sweep with tune-tf resume {folder.path}")
