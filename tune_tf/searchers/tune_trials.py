"""Trials of a registry as Tune knows them, where the study knows less."""

from collections.abc import Collection, Sequence
from typing import Any

from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.trial_registry import TrialRegistry
from tune_tf.tune_internals import controller


def is_full(registry: TrialRegistry, max_concurrent: int | None) -> bool:
    """Return whether as many trials run as Tune, or else ``max_concurrent``, allows at once."""
    limit = controller.max_concurrent(max_concurrent)
    if limit is None:
        return False
    num_active = None if controller.is_repeated() else controller.num_active()
    return (registry.num_unfinished if num_active is None else num_active) >= limit


def reconcile_with_tune(registry: TrialRegistry) -> int | None:
    """Compare a registry with the trials that Tune knows; see :meth:`.TrialRegistry.reconcile`."""
    configs = controller.configs()
    if controller.is_repeated():  # Optuna knows of the first trial of each config only
        configs = {key: each for key, each in configs.items() if registry.record(key)}
    return registry.reconcile(controller.trial_ids(), configs)


def unfinished_ends(
    registry: TrialRegistry, ended: Collection[str] | None = None
) -> dict[str, bool]:
    """Return whether Tune's finished trials failed, of those that are unfinished in the study.

    Only those in ``ended`` are looked at, if it is given.
    """
    failed = controller.finished_trials()
    finished = failed.keys() if ended is None else failed.keys() & set(ended)
    return {trial_id: failed[trial_id] for trial_id in registry.reopen_unfinished(finished)}


def last_result_of_lost(trial_id: str, rungs: Sequence[int]) -> dict[str, Any]:
    """Return the last result of a finished trial whose end the study has lost.

    Tune does not save that a function returned. While it runs, it stops a trial that is not done
    only where trials are paused, which is at rungs.
    """
    last = controller.last_result(trial_id)
    at_rung = last.get(TRAINING_ITERATION) in rungs
    if last and not controller.is_experiment_finished() and not at_rung:
        last["done"] = True
    return last
