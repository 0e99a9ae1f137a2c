"""Conversion of Tune's trials to trial results."""

from collections.abc import Sequence

from ray.tune.experiment import Trial

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.events import TrialEvents
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.outcome_rules import error_cause
from tune_tf.results import TrialResult, kept_metrics
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.tracking.outcome_tracker import latest_result, trial_error
from tune_tf.tracking.tags import trial_number


def trial_name(trial: Trial) -> str:
    """Return the name of a trial from its number, which determines the seed."""
    return f"trial_{trial_number(trial):05d}"


def cause_in(trial: Trial) -> str | None:
    """Return the cause of a trial's outcome, if it is known."""
    if trial.status == Trial.ERROR:
        return error_cause(trial_error(trial))
    cause: str | None = latest_result(trial).get(STOP_CAUSE)
    return cause


def trial_result(
    trial: Trial,
    outcome: Outcome | None,
    constraints: Sequence[Constraint],
    objectives: Sequence[Objective],
    storage: SweepStorage,
    page: TrialEvents | None = None,
) -> TrialResult:
    """Return the result of a trial.

    The trial's events in ``page`` include a removal of checkpoints that Tune still lists, and the
    cause of a failure in an earlier session.
    """
    last = latest_result(trial)
    checkpoints_removed = page is not None and page.checkpoints_removed
    checkpoint = None if checkpoints_removed else trial.checkpoint
    place = storage.place(checkpoint.path) if checkpoint else None
    return TrialResult(
        trial_id=trial.trial_id,
        number=trial_number(trial),
        config=trial.config,
        outcome=outcome,
        cause=cause_in(trial) or (page.cause if page else None),
        iterations=int(last.get("training_iteration", 0)),
        metrics=kept_metrics(last, constraints, objectives),
        checkpoint=place,
        feasible=is_feasible(constraints, last),
        checkpoints_removed=checkpoints_removed,
    )
