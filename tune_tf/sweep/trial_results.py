"""The trials of a finished sweep as plain data."""

from collections.abc import Sequence

from ray.tune.experiment import Trial

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.events import TrialEvents
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.results import TrialResult, told_metrics
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.tracking.outcome_tracker import error_of, latest_result
from tune_tf.tracking.run_outcome import cause_of
from tune_tf.tracking.tags import trial_number


def trial_name(trial: Trial) -> str:
    """Name a trial by its place in the order of proposal, which its seed follows from."""
    return f"trial_{trial_number(trial):05d}"


def cause_in(trial: Trial) -> str | None:
    """Return why a trial ended, where there is more to say than how."""
    if trial.status == Trial.ERROR:
        return cause_of(error_of(trial))
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
    """Return what is kept of a trial.

    Args:
        trial: Tune's trial.
        outcome: How it ended; None if it has not.
        constraints: What its last metrics are to keep.
        objectives: What the sweep optimises. The load of the machine is left out of the metrics,
            apart from what these or the constraints name.
        storage: Where its checkpoints are.
        page: What the sweep's diary tells of it: whether its checkpoints are there no more, though
            Tune names one, and why it failed in an earlier session.
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
        metrics=told_metrics(last, constraints, objectives),
        checkpoint=place,
        feasible=is_feasible(constraints, last),
        checkpoints_removed=checkpoints_removed,
    )
