"""Processes of Tune's trials: which trial has one, and which is kept for the next one."""

from typing import Any

from ray.tune.experiment import Trial


def has_process(controller: Any, trial: Trial) -> bool:
    """Return whether a trial has a process, which may still be starting.

    Tune ends the process that starts for a pending trial if that trial takes over another one.
    """
    controller = getattr(controller, "_tune_controller", controller)  # schedulers get a wrapper
    actor = getattr(controller, "_trial_to_actor", {}).get(trial)
    return actor is not None and controller._actor_manager.is_actor_started(actor)  # noqa: SLF001


def keep_process(controller: Any) -> None:
    """Have Tune keep the process of a trial that ends for one that has just become pending.

    Once the searcher is finished, Tune keeps it only for pending trials that it has staged, which
    it does a step later.
    """
    controller = getattr(controller, "_tune_controller", controller)
    stage = getattr(controller, "_maybe_add_actors", None)
    if stage is not None:
        stage()
