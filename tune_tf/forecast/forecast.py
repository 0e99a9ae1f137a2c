"""Expected time, memory and disk space of a sweep."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class Range:
    """Estimate with bounds that are rarely exceeded: finite, ascending and not negative."""

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
        numbers = sorted(values)
        return cls(numbers[0], statistics.median(numbers), numbers[-1])

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
        return Range(*sorted(max(0.0, total - part) for total, part in pairs))

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
    """Measurements of one config; None for what was not measured."""

    label: str  # smallest, largest, random 1
    config: Mapping[str, Any]
    num_parameters: int
    checkpoint_bytes: int
    memory_bytes: int | None  # peak of a trial in fresh processes
    gpu_memory_bytes: int | None  # peak of the same trial
    epoch_s: Range  # per iteration, over rounds and slots
    trace_s: float  # extra, of the first iteration of a model structure
    start_s: float  # of the trial in a reused process


@dataclass(frozen=True)
class Forecast:
    """Expected time, memory and disk space of a sweep, from call to return of ``run_sweep``."""

    name: str
    settings_digest: str
    made_at: str  # ISO 8601
    machine: str
    cpus: int  # reserved per trial
    gpus: float  # likewise
    num_at_once: int
    num_fitting_memory: int  # parallel trials of the largest config that fit in memory
    max_t: int  # most iterations of a trial
    models: tuple[ConfigMeasurement, ...]  # the smallest and the largest config first
    num_parameters: Range
    memory_bytes: Range  # peak of a trial, all its processes, at the sweep's end
    gpu_memory_bytes: Range | None  # peak of a trial; None without GPUs
    epoch_s: Range
    trials: Range
    epochs: Range
    wall_s: Range
    closing_s: Range  # of these, after the last trial: report and best model
    cpu_hours: Range  # reserved
    gpu_hours: Range  # reserved
    disk_bytes: Range  # of the sweep's folder
    closing_bytes: Range  # of these, written after the last trial
    mlflow_bytes: Range  # growth of MLflow's store and artifacts
    phases: Mapping[str, Range]  # seconds, in order
    assumptions: tuple[str, ...]
    frozen_layers: str = ""  # whether trials share outputs of frozen layers, or why not
    frozen_bytes: Range | None = None  # of these outputs, as a trial reports them
    warnings: tuple[str, ...] = ()  # what the user should know before the sweep starts
