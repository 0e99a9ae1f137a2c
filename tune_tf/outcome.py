"""How a trial can end, and what Tune, Optuna and MLflow call it.

This table is the only place where the three vocabularies meet; every bridge reads it.

The reason of a stop travels in the trial's last result, under :data:`STOP_REASON`, which is what
Ray Tune hands to the scheduler, the searcher and the callbacks alike when a trial completes. Who
knows a reason writes it there: the Trainable its own end, the scheduler its stops, the callback
what is left.
"""

import enum
import math
import re
from collections.abc import Mapping
from typing import Any

STOP_REASON = "stop_reason"
"""Key of a trial's last result that holds an :class:`Outcome` value."""

STOP_CAUSE = "stop_cause"
"""Key of a trial's last result that holds one sentence on why, where there is more to say."""

CONFIG_CHANGED_AT = "config_changed_at"
"""Key of a trial's result that holds the last iteration with the config it was started with, once a
scheduler has given it another one and another trial's weights."""

MLFLOW_RUN_ID = "mlflow_run_id"
"""Key of a trial's last result that holds MLflow's id of its run, where there is one."""


class Outcome(enum.Enum):
    """The end of a trial. The value is what the MLflow tag ``tune_tf.stop_reason`` says.

    Attributes:
        tune: Status of the Ray Tune trial.
        optuna: Name of the ``optuna.trial.TrialState``.
        mlflow: Status of the MLflow run.
    """

    tune: str
    optuna: str
    mlflow: str

    COMPLETED = "completed", "TERMINATED", "COMPLETE", "FINISHED"
    PRUNED = "pruned", "TERMINATED", "PRUNED", "KILLED"
    OUT_OF_BUDGET = "out_of_budget", "TERMINATED", "PRUNED", "KILLED"
    DIVERGED = "diverged", "TERMINATED", "FAIL", "FAILED"
    OOM = "oom", "ERROR", "FAIL", "FAILED"
    ERROR = "error", "ERROR", "FAIL", "FAILED"
    INTERRUPTED = "interrupted", "RUNNING", "RUNNING", "KILLED"

    def __new__(cls, tag: str, tune: str, optuna: str, mlflow: str) -> "Outcome":
        """Make a member whose value is its tag."""
        member = object.__new__(cls)
        member._value_ = tag
        member.tune, member.optuna, member.mlflow = tune, optuna, mlflow
        return member

    @classmethod
    def of_result(cls, result: Mapping[str, Any] | None) -> "Outcome | None":
        """Return the outcome written in a trial's last result, or None where there is none."""
        reason = (result or {}).get(STOP_REASON)
        return _BY_TAG.get(reason) if isinstance(reason, str) else None

    @classmethod
    def of_error(cls, text: str) -> "Outcome":
        """Return OOM for the text of an error that says so, else ERROR."""
        return cls.OOM if _OUT_OF_MEMORY.search(text) else cls.ERROR

    @classmethod
    def of_tag(cls, tag: str) -> "Outcome":
        """Return the outcome that a tag names."""
        return _BY_TAG[tag]


_BY_TAG: dict[str, Outcome] = {outcome.value: outcome for outcome in Outcome}


_OUT_OF_MEMORY = re.compile(
    r"ResourceExhaustedError|MemoryError\b|OOM when allocating|CUDA_ERROR_OUT_OF_MEMORY"
    r"|running low on memory"  # what Ray's memory monitor tells of whom it ended
)


def is_finite(value: object) -> bool:
    """Return whether a reported metric is a finite number; None and text are not."""
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
