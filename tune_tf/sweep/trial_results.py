"""Conversion of Tune's trials to trial results."""

from collections.abc import Sequence

from ray.tune.experiment import Trial

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.events import TrialEvents
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.results import TrialResult, kept_metrics
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.tracking.outcome_tracker import latest_result, trial_error
from tune_tf.tracking.run_outcome import error_cause
from tune_tf.tracking.tags import trial_number


def trial_name(trial: Trial) -> str:
    """Name a trial by its number, which determines its seed."""
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

    Args:
        trial: Tune's trial.
        outcome: Its outcome; None if it has not ended.
        constraints: The sweep's constraints.
        objectives: The sweep's objectives.
        storage: Where the checkpoints are.
        page: Events of the trial: they say whether its checkpoints were removed, though Tune still
            names one, and why it failed in an earlier session.
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
