"""Expected time, memory and disk space of a sweep."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class Range:
    """Estimate with a lower and an upper bound.

    Args:
        low: Lower bound, rarely undercut; not negative.
        likely: Best estimate.
        high: Upper bound, rarely exceeded; finite.

    Raises:
        InvalidSettingsError: The numbers are not finite, or not in this order.
    """

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        """Validate the numbers."""
        numbers = (self.low, self.likely, self.high)
        if not all(map(math.isfinite, numbers)) or not 0 <= self.low <= self.likely <= self.high:
            raise InvalidSettingsError(
                [f"a range is three finite numbers 0 <= low <= likely <= high, not {numbers}"]
            )

    @classmethod
    def exactly(cls, value: float) -> "Range":
        """Return the range of a known number."""
        return cls(value, value, value)

    @classmethod
    def of(cls, values: Iterable[float]) -> "Range":
        """Return minimum, median and maximum of at least one number."""
        known = sorted(values)
        return cls(known[0], statistics.median(known), known[-1])

    @classmethod
    def around(cls, likely: float, *, less: float, more: float) -> "Range":
        """Return a range from ``1 - less`` to ``1 + more`` times a number."""
        return cls(likely * max(0.0, 1 - less), likely, likely * (1 + more))

    def __add__(self, other: "Range") -> "Range":
        """Add two fully correlated estimates."""
        return Range(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def minus(self, other: "Range") -> "Range":
        """Subtract one summand of this sum, not below zero."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Range(*sorted(max(0.0, whole - part) for whole, part in pairs))

    def times(self, factor: float) -> "Range":
        """Multiply by a factor."""
        return Range(self.low * factor, self.likely * factor, self.high * factor)

    def at_most(self, limit: float) -> "Range":
        """Clip to an upper limit."""
        return Range(min(self.low, limit), min(self.likely, limit), min(self.high, limit))

    def contains(self, value: float) -> bool:
        """Return whether a number lies in the range, ends included."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class ConfigMeasurement:
    """Measurements of one config.

    Args:
        label: ``smallest``, ``largest``, ``random 1``.
        memory_bytes: Peak memory of a trial in fresh processes; None if not measured.
        gpu_memory_bytes: Peak GPU memory of the same trial; None if not measured or without GPUs.
        epoch_s: Seconds per iteration, over rounds and slots.
        trace_s: Extra seconds of the first iteration of a model structure.
        start_s: Seconds to start the trial in a reused process.
    """

    label: str
    config: Mapping[str, Any]
    num_parameters: int
    checkpoint_bytes: int
    memory_bytes: int | None
    gpu_memory_bytes: int | None
    epoch_s: Range
    trace_s: float
    start_s: float


@dataclass(frozen=True)
class Forecast:
    """Expected time, memory and disk space of a sweep.

    Times are those of the whole sweep unless stated otherwise, from call to return of
    ``run_sweep``.

    Args:
        made_at: Time of the forecast, as ISO 8601.
        cpus: Cores reserved per trial.
        gpus: GPUs reserved per trial.
        num_fitting_memory: Number of parallel trials of the largest config that fit in memory.
        max_t: Most iterations of a trial.
        models: Measured configs, the smallest and the largest first.
        memory_bytes: Peak host memory of a trial, all its processes, at the sweep's end.
        gpu_memory_bytes: Peak GPU memory of a trial; None without GPUs.
        closing_s: Of these, seconds after the last trial: report and best model.
        cpu_hours: Reserved cores times hours.
        gpu_hours: Reserved GPUs times hours.
        disk_bytes: Size of the sweep's folder.
        closing_bytes: Of these, bytes written after the last trial.
        mlflow_bytes: Growth of MLflow's store and artifacts.
        phases: Seconds by phase, in order.
        warnings: What the user should know before the sweep starts.
    """

    name: str
    settings_digest: str
    made_at: str
    machine: str
    cpus: int
    gpus: float
    num_at_once: int
    num_fitting_memory: int
    max_t: int
    models: tuple[ConfigMeasurement, ...]
    num_parameters: Range
    memory_bytes: Range
    gpu_memory_bytes: Range | None
    epoch_s: Range
    trials: Range
    epochs: Range
    wall_s: Range
    closing_s: Range
    cpu_hours: Range
    gpu_hours: Range
    disk_bytes: Range
    closing_bytes: Range
    mlflow_bytes: Range
    phases: Mapping[str, Range]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()
