"""The trials of a finished sweep as plain data."""

from collections.abc import Sequence
from pathlib import Path

from ray.tune.experiment import Trial

from tune_tf.bookkeeping import is_of_machine, reported
from tune_tf.constraint import Constraint, is_feasible
from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.results import TrialResult
from tune_tf.tracking.details import trial_number
from tune_tf.tracking.ending import cause_of
from tune_tf.tracking.endings import error_of, last_report


def trial_name(trial: Trial) -> str:
    """Name a trial by its place in the order of proposal, which its seed follows from."""
    return f"trial_{trial_number(trial):05d}"


def trial_result(
    trial: Trial,
    outcome: Outcome | None,
    constraints: Sequence[Constraint],
    objectives: Sequence[Objective],
) -> TrialResult:
    """Return what is kept of a trial.

    Args:
        trial: Tune's trial.
        outcome: How it ended; None if it has not.
        constraints: What its last metrics are to keep.
        objectives: What the sweep optimises. The load of the machine is left out of the metrics,
            apart from what these or the constraints name.
    """
    last = last_report(trial)
    named = {each.metric for each in constraints} | {each.metric for each in objectives}
    checkpoint = trial.checkpoint
    return TrialResult(
        trial_id=trial.trial_id,
        number=trial_number(trial),
        config=trial.config,
        outcome=outcome,
        cause=cause_of(error_of(trial)) if trial.status == Trial.ERROR else last.get(STOP_CAUSE),
        iterations=int(last.get("training_iteration", 0)),
        metrics={
            name: float(value)
            for name, value in reported(last).items()
            if isinstance(value, float | int)
            and not isinstance(value, bool)
            and (name in named or not is_of_machine(name))
        },
        checkpoint=Path(checkpoint.path) if checkpoint else None,
        feasible=is_feasible(constraints, last),
    )
