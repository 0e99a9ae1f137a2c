"""Changes of a trial's status through private methods of Tune's controller."""

from typing import Any

from ray.tune.experiment import Trial


def set_trial_status(controller: Any, trial: Trial, status: str) -> bool:
    """Set a trial's status in Tune; return False where the controller has no such method."""
    set_status = getattr(controller, "_set_trial_status", None)
    if set_status is None:
        return False
    set_status(trial, status)
    return True


def mark_for_snapshot(controller: Any, trial: Trial) -> None:
    """Have Tune save the end of a trial that has no actor, which it otherwise forgets.

    A resume would run the trial again. Without the private method, the end is lost only if the
    driver is.
    """
    mark = getattr(controller, "_mark_trial_to_checkpoint", None)
    if mark is not None:
        mark(trial)
