"""What stands in a result beside the metrics that a trial reports."""

from collections.abc import Mapping
from typing import Any, Final

from tune_tf.outcome import CONFIG_CHANGED_AT

TRAINING_ITERATION: Final = "training_iteration"
"""Key that counts a trial's results."""

BOOKKEEPING: Final = frozenset(
    {
        CONFIG_CHANGED_AT,
        "checkpoint_dir_name",
        "config",
        "date",
        "done",
        "episodes_this_iter",
        "episodes_total",
        "experiment_id",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "timesteps_since_restore",
        "timesteps_this_iter",
        "timesteps_total",
        TRAINING_ITERATION,
        "trial_id",
        "trial_name",
        "warmup_time",
    }
)
"""Keys that Ray Tune or a scheduler of ours fills in."""

SYSTEM_METRICS: Final = "system/"
"""What the keys start with that hold the load of a trial's machine and process."""

PERFORMANCE: Final = "perf/"
"""What the keys start with that hold how fast a trial trains."""

ROWS_PER_S: Final = f"{PERFORMANCE}rows_per_s"
"""Training rows by the seconds of an epoch, validation and tracing included."""

INPUT_WAIT: Final = f"{PERFORMANCE}input_wait"
"""Part of an epoch, 0 to 1, in which it waited for rows."""

PEAK_MEMORY: Final = f"{PERFORMANCE}peak_memory_bytes"
"""Most host memory that the processes of a trial have had, earlier trials of theirs included."""


def reported(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trial itself has put into a result, nested or flat."""
    return {
        name: value
        for name, value in result.items()
        if name not in BOOKKEEPING and not name.startswith("config/")
    }


def own_metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trial has reported of its training: not of its machine and its speed."""
    own = reported(result)
    return {name: value for name, value in own.items() if not is_of_machine(name)}


def is_of_machine(name: str) -> bool:
    """Whether a key holds the load of a trial's machine or its speed there."""
    return name.startswith((SYSTEM_METRICS, PERFORMANCE))
