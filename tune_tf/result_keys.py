"""Keys of a result other than the user's metrics."""

from collections.abc import Mapping
from typing import Any, Final

from tune_tf.outcome import CONFIG_CHANGED_AT

Metrics = dict[str, Any]
"""Metrics by name."""

TRAINING_ITERATION: Final = "training_iteration"
"""Key of the number of a trial's result, from 1."""

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
"""Keys that Ray Tune or one of our schedulers fills in."""

KEPT: Final = "kept/"
"""Prefix of the metrics of a trial's best epoch in its results, where it keeps that."""

SYSTEM_METRICS: Final = "system/"
"""Prefix of the load of a trial's machine and process, and of its speed and memory.

MLflow has a page of its own for these, so a run's charts begin with its learning curves.
"""

GRAPH: Final = f"{SYSTEM_METRICS}graph"
"""Whether a trial's graph was traced for it, and why."""

ROWS_PER_S: Final = f"{SYSTEM_METRICS}rows_per_s"
"""Training rows per second of an epoch, validation and tracing included."""

FROZEN_LAYERS: Final = f"{SYSTEM_METRICS}frozen_layers"
"""Which outputs of frozen layers are shared, or why they are not; text, if any are frozen."""

NOT_SHARED: Final = "not shared: "
"""Beginning of such a text before a reason."""

WEIGHTS_DIFFER: Final = "the weights differ between trials: load them, or give initializers seeds"
"""Reason why the outputs of frozen layers with random weights are not shared."""

STALENESS_MEAN: Final = "async/staleness_mean"
"""Mean number of updates by which the gradients of an epoch were behind."""

STALENESS_MAX: Final = "async/staleness_max"
"""Largest number of updates by which a gradient of an epoch was behind."""

PEAK_MEMORY: Final = f"{SYSTEM_METRICS}peak_memory_bytes"
"""Peak host memory of a trial's processes, including earlier trials in them."""


def reported_metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a result, nested or flat, that the trial itself reported."""
    return {
        name: value
        for name, value in result.items()
        if name not in BOOKKEEPING and not name.startswith(("config/", KEPT))
    }


def training_metrics(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's metrics without those of its machine and speed."""
    metrics = reported_metrics(result)
    return {name: value for name, value in metrics.items() if not is_machine_metric(name)}


def is_machine_metric(name: str) -> bool:
    """Return whether a key holds the load of a trial's machine or its speed."""
    return name.startswith(SYSTEM_METRICS)
