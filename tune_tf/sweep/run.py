"""A sweep from its settings to its result, and on from where it stood."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune

from tune_tf.config import SweepConfig
from tune_tf.events import EventLog
from tune_tf.results import SweepResult
from tune_tf.sweep.callbacks.forecast_actuals import ForecastActuals
from tune_tf.sweep.callbacks.notebook_progress import shown_in_notebook
from tune_tf.sweep.cluster import cluster, runs_as_user
from tune_tf.sweep.plan import plan_sweep
from tune_tf.sweep.ray_client import check_paths, is_remote_client, run_on_cluster
from tune_tf.sweep.runner import run_trials
from tune_tf.sweep.state.config_diff import changes_between, check_changes
from tune_tf.sweep.state.extended_budget import extended_budget
from tune_tf.sweep.state.recovery import Recovery, recover
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep.sweep_result import settled_result
from tune_tf.sweep_folder import SweepFolder


def run_sweep(
    config: SweepConfig,
    *,
    base_dir: str | Path | None = None,
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Run a sweep to its end, or until Ctrl-C.

    Starts a Ray cluster on this machine, and ends it again, where none is connected; the section
    ``cluster`` of the settings, ``RAY_ADDRESS`` or ``ray.init`` choose another. From outside of a
    cluster (``ray://``) a process on it drives the sweep.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to; the working directory by default.
        callbacks: More Tune callbacks, called after the sweep's own.

    Returns:
        All trials and the best one; ``interrupted`` tells whether a resume would go on.

    Raises:
        TuneTfError: Before any trial starts, where something is wrong that can be known.
    """
    base_dir = Path(base_dir or Path.cwd())
    reckoning = ForecastActuals.begin()
    with cluster(config.cluster, base_dir):
        if is_remote_client():
            check_paths(config)
            return run_on_cluster(run_sweep, config, callbacks=callbacks)
        plan = plan_sweep(config, base_dir=base_dir)
        folder = SweepFolder.create(config, base_dir, private=runs_as_user())
        reckoning.take(folder)
        with shown_in_notebook(folder) as drawn, EventLog(folder.path) as diary:
            first = Recovery(SweepStorage.of(folder.path, config))
            return run_trials(folder, plan, diary, reckoning, first, [*callbacks, *drawn])


def resume_sweep(
    path: str | Path,
    *,
    storage_path: str | Path = "sweeps",
    allow_changes: bool = False,
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Go on with a sweep that was interrupted or killed.

    Trials that have ended are not run again; those that were running go on from their last
    checkpoint. Where none is left to run, what its end had not come to is done. A sweep that has
    come to its end is left as it is. What was lost, because a file of the sweep is damaged, is told
    by warnings.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        storage_path: Where sweeps are looked for by id or name.
        allow_changes: Whether to go on with what was edited in the folder's ``sweep.yaml``.
        callbacks: More Tune callbacks, as many as at the start.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: It is still running, its settings were edited, or no state of it is
            whole.
        TuneTfError: As for :func:`run_sweep`.
    """
    folder = SweepFolder.open(path, storage_path)
    settled = settled_result(folder)
    if settled is not None:
        return settled
    if is_remote_client(folder.config.cluster):
        with cluster(folder.config.cluster, folder.base_dir):
            return run_on_cluster(
                resume_sweep, folder.path, allow_changes=allow_changes, callbacks=callbacks
            )
    reckoning = ForecastActuals.begin()
    with shown_in_notebook(folder) as drawn, EventLog(folder.path) as diary:
        folder = _changed(folder, diary, allowed=allow_changes)
        return _go_on(folder, diary, reckoning, [*callbacks, *drawn])


def extend_sweep(
    path: str | Path,
    budget: Mapping[str, Any],
    *,
    storage_path: str | Path = "sweeps",
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Go on with a sweep that has ended or was interrupted, with a larger budget.

    Trials that have ended are not run again, those that the old budget stopped neither.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        budget: Limits by name, as in the section ``budget`` of a sweep file: a number or None in
            place of what there is, or a text like ``"+20"`` for that much more.
        storage_path: Where sweeps are looked for by id or name.
        callbacks: More Tune callbacks, as many as at the start.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: It is still running.
        InvalidSettingsError: The budget is wrong, or would not change.
        TuneTfError: As for :func:`run_sweep`.
    """
    folder = SweepFolder.open(path, storage_path)
    if is_remote_client(folder.config.cluster):
        with cluster(folder.config.cluster, folder.base_dir):
            return run_on_cluster(extend_sweep, folder.path, budget, callbacks=callbacks)
    reckoning = ForecastActuals.begin()
    with shown_in_notebook(folder) as drawn, EventLog(folder.path) as diary:
        folder = _changed(folder, diary, allowed=False)
        larger = extended_budget(folder.config.budget, budget, num_trials=len(diary.pages.trials))
        config = folder.config.model_copy(update={"budget": larger})
        return _go_on(_noted(folder, diary, config), diary, reckoning, [*callbacks, *drawn])


def _changed(folder: SweepFolder, diary: EventLog, *, allowed: bool) -> SweepFolder:
    """Return the folder with the settings that were edited in it, if that is allowed."""
    edited = folder.edited()
    if edited is None:
        return folder
    changes = changes_between(folder.config, edited)
    check_changes(folder.sweep_id, changes, edited, allowed=allowed)
    return _noted(folder, diary, edited)


def _noted(folder: SweepFolder, diary: EventLog, config: SweepConfig) -> SweepFolder:
    """Return the folder with other settings, and note what is other."""
    changes = changes_between(folder.config, config)
    diary.changed({change.where: change.values for change in changes})
    return folder.with_config(config)


def _go_on(
    folder: SweepFolder,
    diary: EventLog,
    reckoning: ForecastActuals,
    callbacks: Sequence[tune.Callback],
) -> SweepResult:
    recovery = recover(folder.path, folder.config)
    with cluster(folder.config.cluster, folder.base_dir):
        plan = plan_sweep(folder.config, base_dir=folder.base_dir)
        recovery.write()
        return run_trials(folder, plan, diary, reckoning, recovery, callbacks)
