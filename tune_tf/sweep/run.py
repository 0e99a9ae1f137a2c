"""Running, resuming and extending sweeps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune

from tune_tf.config import SweepConfig
from tune_tf.events import EventLog
from tune_tf.results import SweepResult
from tune_tf.sweep.callbacks.forecast_actuals import ForecastActuals
from tune_tf.sweep.callbacks.notebook_progress import draw_in_notebook
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
    cluster (``ray://``) a process on it runs the driver.

    Args:
        config: The sweep's settings.
        base_dir: What the workload's path is relative to; the working directory by default.
        callbacks: More Tune callbacks, called after the sweep's own.

    Returns:
        All trials and the best one; ``interrupted`` says whether it can be resumed.

    Raises:
        TuneTfError: Settings, workload or cluster are invalid; raised before any trial starts.
    """
    base_dir = Path(base_dir or Path.cwd())
    actuals = ForecastActuals.begin()
    with cluster(config.cluster, base_dir):
        if is_remote_client():
            check_paths(config)
            return run_on_cluster(run_sweep, config, callbacks=callbacks)
        plan = plan_sweep(config, base_dir=base_dir)
        folder = SweepFolder.create(config, base_dir, private=runs_as_user())
        actuals.copy_forecast(folder)
        with draw_in_notebook(folder) as drawn, EventLog(folder.path) as event_log:
            first = Recovery(SweepStorage.of(folder.path, config))
            return run_trials(folder, plan, event_log, actuals, first, [*callbacks, *drawn])


def resume_sweep(
    path: str | Path,
    *,
    storage_path: str | Path = "sweeps",
    allow_changes: bool = False,
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Resume a sweep that was interrupted or killed.

    Trials that have ended are not run again; those that were running resume from their last
    checkpoint. Where none is left to run, the missing report or best model is written. A finished
    sweep is left unchanged. Warnings report what was lost where a file is damaged.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        storage_path: Where sweeps are looked for by id or name.
        allow_changes: Whether to apply edits of the folder's ``sweep.yaml``.
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
    actuals = ForecastActuals.begin()
    with draw_in_notebook(folder) as drawn, EventLog(folder.path) as event_log:
        folder = _apply_edits(folder, event_log, allowed=allow_changes)
        return _resume(folder, event_log, actuals, [*callbacks, *drawn])


def extend_sweep(
    path: str | Path,
    budget: Mapping[str, Any],
    *,
    storage_path: str | Path = "sweeps",
    callbacks: Sequence[tune.Callback] = (),
) -> SweepResult:
    """Continue a sweep that has ended or was interrupted with a larger budget.

    Trials that have ended are not run again, not even those that the old budget stopped.

    Args:
        path: The sweep's folder, its id, or its name for the latest sweep of that name.
        budget: Limits by name, as in the section ``budget`` of a sweep file: a number or None to
            replace the limit, or a text like ``"+20"`` to add to it.
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
    actuals = ForecastActuals.begin()
    with draw_in_notebook(folder) as drawn, EventLog(folder.path) as event_log:
        folder = _apply_edits(folder, event_log, allowed=False)
        larger = extended_budget(
            folder.config.budget, budget, num_trials=len(event_log.history.trials)
        )
        config = folder.config.model_copy(update={"budget": larger})
        return _resume(
            _change_config(folder, event_log, config), event_log, actuals, [*callbacks, *drawn]
        )


def _apply_edits(folder: SweepFolder, event_log: EventLog, *, allowed: bool) -> SweepFolder:
    """Return the folder with its edited settings, if that is allowed."""
    edited = folder.edited()
    if edited is None:
        return folder
    changes = changes_between(folder.config, edited)
    check_changes(folder.sweep_id, changes, edited, allowed=allowed)
    return _change_config(folder, event_log, edited)


def _change_config(folder: SweepFolder, event_log: EventLog, config: SweepConfig) -> SweepFolder:
    """Return the folder with new settings, and record the changes."""
    changes = changes_between(folder.config, config)
    event_log.record_changes({change.where: change.values for change in changes})
    return folder.with_config(config)


def _resume(
    folder: SweepFolder,
    event_log: EventLog,
    actuals: ForecastActuals,
    callbacks: Sequence[tune.Callback],
) -> SweepResult:
    recovery = recover(folder.path, folder.config)
    with cluster(folder.config.cluster, folder.base_dir):
        plan = plan_sweep(folder.config, base_dir=folder.base_dir)
        recovery.write()
        return run_trials(folder, plan, event_log, actuals, recovery, callbacks)
