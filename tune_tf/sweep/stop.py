"""Stopping of sweeps and trials in other processes."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tune_tf.errors import SweepConflictError
from tune_tf.inspection import SweepState, SweepView
from tune_tf.record import post_request
from tune_tf.sweep_folder import SweepFolder

_CHECK_EVERY_S = 0.2


def stop_sweep(
    path: str | Path,
    *,
    storage_path: str | Path = "sweeps",
    end: bool = False,
) -> SweepView:
    """Stop a sweep that runs in another process, on this machine or another one, and wait for it.

    Trials stop after their current epoch, or at their last checkpoint.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        storage_path: Folder that is searched for ids and names.
        end: Whether to end the sweep for good, as if its budget were spent, with report and best
            model. Otherwise it is interrupted, and :func:`~tune_tf.resume_sweep` resumes it.

    Raises:
        UnknownSweepError: There is no such sweep.
        SweepConflictError: It is not running.
    """
    folder = SweepFolder.open(path, storage_path)
    running = _running(folder)
    post_request(folder.path, {"stop": "end" if end else "interrupt"})
    return _wait_until(lambda view: False, folder, running)


def stop_trials(
    path: str | Path,
    trials: Sequence[str],
    *,
    storage_path: str | Path = "sweeps",
) -> SweepView:
    """Stop trials of a sweep that runs in another process; the sweep continues with others.

    A trial ends with its next result, like one that the scheduler prunes, or at once if it is
    paused; it is waited for.

    Args:
        path: Folder, id or name of the sweep; a name selects its latest sweep.
        trials: Numbers or ids.
        storage_path: Folder that is searched for ids and names.

    Raises:
        UnknownSweepError: There is no such sweep.
        UnknownTrialError: It has no such trial.
        SweepConflictError: The sweep is not running, or a trial has ended.
    """
    folder = SweepFolder.open(path, storage_path)
    running = _running(folder)
    views = [running.trial(name) for name in trials]
    if ended := [f"{trial.number} ({trial.state})" for trial in views if trial.has_ended]:
        raise SweepConflictError(
            f"trial{'s' if len(ended) > 1 else ''} {', '.join(ended)} of {folder.sweep_id} already "
            "ended: nothing was stopped"
        )
    ids = {trial.trial_id for trial in views}
    post_request(folder.path, {"trial_ids": sorted(ids)})

    def have_ended(view: SweepView) -> bool:
        return all(trial.has_ended for trial in view.trials if trial.trial_id in ids)

    view = _wait_until(have_ended, folder, running)
    return view if have_ended(view) else _running(folder)


def _running(folder: SweepFolder) -> SweepView:
    view = SweepView.of(folder)
    if view.state is SweepState.RUNNING:
        return view
    remedy = (
        f"`tune-tf resume {folder.path}` resumes it"
        if view.state is SweepState.INTERRUPTED
        else f"`tune-tf extend {folder.path} num_samples=+10` would continue it"
    )
    raise SweepConflictError(
        f"{folder.sweep_id} is not running, it is {view.state.value}; {remedy}"
    )


def _wait_until(
    condition: Callable[[SweepView], bool],
    folder: SweepFolder,
    view: SweepView,
) -> SweepView:
    """Poll a sweep until a condition holds or it stops running."""
    while view.state is SweepState.RUNNING and not condition(view):
        time.sleep(_CHECK_EVERY_S)
        view = SweepView.of(folder)
    return view
