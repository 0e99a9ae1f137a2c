"""Axes of plots: scales, positions of values, and ticks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tune_tf.formatting import value_text
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace
from tune_tf.space.frozen import hashable


@dataclass(frozen=True)
class TimeUnit:
    """Unit of time with its length in seconds and its plural name."""

    seconds: float
    name: str

    @classmethod
    def of(cls, span_s: float) -> "TimeUnit":
        """Return a readable unit for a span of seconds."""
        units = [cls(86_400, "days"), cls(3600, "hours"), cls(60, "minutes")]
        fitting = (unit for unit in units if math.isfinite(span_s) and span_s >= 2 * unit.seconds)
        return next(fitting, cls(1, "seconds"))

    @property
    def label(self) -> str:
        """Label of a time axis."""
        return f"{self.name} since the first trial began"


Floats = NDArray[np.float64]

_MIN_LOG_RATIO = 100


@dataclass(frozen=True)
class Axis:
    """Axis of a parameter, a metric or another quantity.

    The values are those of the trials, NaN if missing; for a choice, the indices of its options.
    """

    label: str
    values: Floats = field(default_factory=lambda: np.empty(0))
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    options: tuple[str, ...] | None = None  # at positions 0, 1, ...; None for numbers
    fixed: bool = False  # whether plots show exactly ``low`` to ``high``
    percent: bool = False  # whether the numbers are shares

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether each trial has no value, such as that of an inactive parameter."""
        return np.isnan(self.values)

    @property
    def jittered(self) -> Floats:
        """Values with jitter around the options of a choice, so that equal ones do not overlap."""
        if self.options is None:
            return self.values
        # Multiples of the golden ratio fill an interval evenly for any number of trials.
        spread = (np.arange(len(self.values)) * 0.618034) % 1 - 0.5
        return self.values + 0.5 * spread

    def scale(self, values: Floats | Sequence[float]) -> Floats:
        """Scale values to positions from 0 to 1."""
        low, high, at = self.low, self.high, np.asarray(values, dtype=np.float64)
        if self.log:
            low, high, at = np.log(low), np.log(high), np.log(at)
        return (at - low) / (high - low) if high > low else np.where(np.isnan(at), at, 0.5)

    def ticks(self) -> tuple[list[float], list[str]]:
        """Return positions and labels of ticks: the options, or numbers including both ends."""
        if self.options is not None:
            return list(map(float, range(len(self.options)))), list(self.options)
        if self.low == self.high:
            return [self.low], [f"{self.low:.4g}"]
        space = np.geomspace if self.log else np.linspace
        positions = [float(value) for value in space(self.low, self.high, 5)]
        return positions, [f"{value:.3g}" for value in positions]


@dataclass(frozen=True)
class ParameterAxes:
    """Axes of searched parameters, and paths of those that do not fit."""

    visible: tuple[Axis, ...]
    left_out: tuple[str, ...]


def parameter_axes(
    space: SearchSpace,
    configs: Sequence[Mapping[str, Any]],
    *,
    limit: int = 12,
    masked: Callable[[str], str] = str,
) -> ParameterAxes:
    """Return an axis for each searched parameter, at most ``limit``.

    ``configs`` are flat, without inactive parameters. ``masked`` masks secrets in option texts.
    """
    axes = []
    searched = [path for path, it in space.parameters.items() if not isinstance(it, Constant)]
    for path in searched[:limit]:
        parameter = space.parameters[path]
        if isinstance(parameter, Choice):
            places = {hashable(option): at for at, option in enumerate(parameter.options)}
            values = [
                places.get(hashable(config[path]), np.nan) if path in config else np.nan
                for config in configs
            ]
            options = [
                value_text(masked(value_text(option, limit=1000)), limit=24)
                for option in parameter.options
            ]
            axes.append(options_axis(path, options, np.array(values, dtype=np.float64)))
        elif isinstance(parameter, Float | Int):
            sampled = [config.get(path) for config in configs]
            values = [value if isinstance(value, int | float) else np.nan for value in sampled]
            # PBT may perturb values out of the range.
            finite = [value for value in values if np.isfinite(value)]
            low, high = min([parameter.low, *finite]), max([parameter.high, *finite])
            numbers = np.array(values, dtype=np.float64)
            axes.append(Axis(path, numbers, low, high, log=parameter.log and low > 0))
    return ParameterAxes(tuple(axes), tuple(searched[limit:]))


def options_axis(label: str, options: Sequence[str], values: Floats | None = None) -> Axis:
    """Return an axis of options; ``values`` are the indices of those of the trials."""
    return Axis(
        label,
        np.empty(0) if values is None else values,
        -0.5,
        len(options) - 0.5,
        options=tuple(options),
        fixed=True,
    )


def metric_axis(label: str, values: Floats) -> Axis:
    """Return the axis of a metric; logarithmic if positive values span orders of magnitude."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Axis(label, values, 0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    small, large = np.quantile(finite, [0.01, 0.99])
    log = bool(low > 0 and large / small > _MIN_LOG_RATIO)
    return Axis(label, values, low, high, log=log)
