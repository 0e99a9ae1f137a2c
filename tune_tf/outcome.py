"""Outcomes of a trial, and their names in Tune, Optuna and MLflow.

The reason of a stop is part of the trial's last result, under :data:`STOP_REASON`, because Ray
Tune passes that result to the scheduler, the searcher and the callbacks when a trial completes.
The Trainable writes its own end there, the scheduler its stops, the callback the rest.
"""

import enum
import math
import re
from collections.abc import Mapping
from typing import Any

STOP_REASON = "stop_reason"
"""Key of a trial's last result that holds an :class:`Outcome` value."""

STOP_CAUSE = "stop_cause"
"""Key of a trial's last result that holds a one-sentence cause, if there is one."""

STOPPED_BY_HAND = "stopped by hand"
"""Cause of a trial that a request stopped."""

CONFIG_CHANGED_AT = "config_changed_at"
"""Key of a trial's result that holds the last iteration with the config it was started with, once a
scheduler has given it another config and the weights of another trial."""

MLFLOW_RUN_ID = "mlflow_run_id"
"""Key of a trial's last result that holds MLflow's id of its run, where there is one."""


class Outcome(enum.Enum):
    """How a trial ended. The value is that of the MLflow tag ``tune_tf.stop_reason``.

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

    def __new__(cls, tag: Any, tune: str = "", optuna: str = "", mlflow: str = "") -> "Outcome":
        """Create a member whose value is its tag; members are looked up by the tag alone."""
        member = object.__new__(cls)
        member._value_ = tag
        member.tune, member.optuna, member.mlflow = tune, optuna, mlflow
        return member

    @classmethod
    def of_result(cls, result: Mapping[str, Any] | None) -> "Outcome | None":
        """Return the outcome in a trial's last result, or None."""
        try:
            return cls((result or {}).get(STOP_REASON))
        except ValueError:
            return None

    @classmethod
    def of_error(cls, text: str) -> "Outcome":
        """Return OOM if the text of an error says so, else ERROR."""
        return cls.OOM if _OUT_OF_MEMORY.search(text) else cls.ERROR


_OUT_OF_MEMORY = re.compile(
    r"ResourceExhaustedError|RESOURCE_EXHAUSTED|MemoryError\b|OOM when allocating"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|Out of memory while trying"
    # A GPU without memory for cuBLAS and cuDNN, or for a copy
    r"|CU\w+_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)|No (?:blas|dnn) support for stream"
    r"|using StreamExecutor without (?:BLAS|DNN) support"
    r"|failed to create cublas handle|cuDNN failed to initialize|Dst tensor is not initialized"
    r"|running low on memory"  # Ray's memory monitor
)


def is_finite(value: object) -> bool:
    """Return whether a value is a finite number."""
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
