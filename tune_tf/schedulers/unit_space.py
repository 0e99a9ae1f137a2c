"""Search space in numbers: unit intervals and options, as features of a process."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

import numpy as np

from tune_tf.schedulers.gaussian_process import FloatArray
from tune_tf.space import Choice, Constant, Float, Int, SearchSpace
from tune_tf.space.hashable import hashable

_OPTION: Final = 0.7
_OTHER: Final = 9.0
_MIN_ORDERED: Final = 3


class UnitSpace:
    """Points of a search space: a number from 0 to 1 for a range, an option's index for a choice.

    A point has one column a parameter, constants left out; NaN stands for an inactive one. Ranges
    are even on their scale, and a range of steps has a point in the middle of each step's share.
    A choice of three or more numbers is a range of as many steps, in their order.

    Attributes:
        num_ranges: Number of ranges.
        groups: The column that each feature belongs to.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._parameters = {
            path: each for path, each in space.parameters.items() if not isinstance(each, Constant)
        }
        self._columns = {path: column for column, path in enumerate(self._parameters)}
        self._num_options = [
            len(each.options) if isinstance(each, Choice) and not _ascending(each) else 0
            for each in self._parameters.values()
        ]
        self.num_ranges = self._num_options.count(0)
        self.groups = np.repeat(
            np.arange(len(self._num_options)), [max(count, 1) for count in self._num_options]
        )

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._parameters)

    def encode(self, config: Mapping[str, Any]) -> FloatArray:
        """Return the point of a flat config; a value outside of the space counts as inactive."""
        point = np.full(len(self), np.nan)
        active: dict[str, Any] = {}
        for path, parameter in self._space.parameters.items():
            if path in config and parameter.condition.holds(active):
                active[path] = config[path]
                if path in self._columns and parameter.error_for(config[path]) is None:
                    column = self._columns[path]
                    point[column] = _to_unit(self._parameters[path], config[path])
        return point

    def decode(self, point: FloatArray) -> dict[str, Any]:
        """Return the active parameters of a point, by path, constants included."""
        values: dict[str, Any] = {}
        for path, parameter in self._space.parameters.items():
            if parameter.condition.holds(values):
                values[path] = (
                    parameter.value
                    if isinstance(parameter, Constant)
                    else _from_unit(self._parameters[path], float(point[self._columns[path]]))
                )
        return values

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return random points, [count, columns]."""
        return self._valid(self._drawn(count, rng))

    def perturb(self, point: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
        """Return points around one: most ranges moved by up to a fourth, some choices drawn."""
        drawn = self._drawn(count, rng)
        points = np.where(np.isnan(point), drawn, point)
        scale = 10 ** rng.uniform(-2.3, -0.6, size=(count, 1))
        moved = np.clip(points + scale * rng.normal(size=points.shape), 0, 1)
        is_choice = np.array(self._num_options) > 0
        chosen = rng.random(points.shape) < np.where(is_choice, 0.15, 0.6)
        return self._valid(np.where(chosen, np.where(is_choice, drawn, moved), points))

    def features(self, points: FloatArray) -> FloatArray:
        """Return the features of points: numbers, and options as 0 or 0.7 each."""
        parts = []
        for column, count in enumerate(self._num_options):
            values = points[:, column]
            if count:
                parts.append(_OPTION * (values[:, None] == np.arange(count)))
            else:
                parts.append(np.nan_to_num(values, nan=0.5)[:, None])
        return np.concatenate(parts, axis=1)

    def positions(self, points: FloatArray) -> FloatArray:
        """Return points for a distance by the largest difference, where options lie far apart."""
        is_choice = np.array(self._num_options) > 0
        return np.nan_to_num(np.where(is_choice, points * _OTHER, points), nan=-_OTHER)

    def _drawn(self, count: int, rng: np.random.Generator) -> FloatArray:
        points = rng.random((count, len(self)))
        for column, num_options in enumerate(self._num_options):
            if num_options:
                points[:, column] = np.floor(points[:, column] * num_options)
        return points

    def _valid(self, points: FloatArray) -> FloatArray:
        """Return points moved to the nearest values, without their inactive parameters."""
        for column, parameter in enumerate(self._parameters.values()):
            if self._num_options[column] == 0 and _has_steps(parameter):
                values = points[:, column]
                points[:, column] = [_to_unit(parameter, _from_unit(parameter, v)) for v in values]
        if self._space.conditional:
            for point in points:
                active = self.decode(point)
                for path, column in self._columns.items():
                    if path not in active:
                        point[column] = np.nan
        return points


def _scale(parameter: Float | Int) -> tuple[float, float, bool]:
    """Return the ends of a range's unit interval, as logarithms if it is logarithmic."""
    margin = (parameter.step or 0) / 2
    low, high = parameter.low - margin, parameter.high + margin
    return (math.log(low), math.log(high), True) if parameter.log else (low, high, False)


def _ascending(parameter: Choice) -> list[Any]:
    """Return the options in their order, if they are three or more numbers; else an empty list."""
    options = parameter.options
    are_numbers = all(isinstance(each, Real) and not isinstance(each, bool) for each in options)
    if len(options) < _MIN_ORDERED or not are_numbers:
        return []
    if any(math.isnan(each) for each in options if not isinstance(each, int)):
        return []
    return sorted(options)


def _has_steps(parameter: Choice | Float | Int) -> bool:
    if isinstance(parameter, Choice):
        return True
    return bool(parameter.step) or parameter.low == parameter.high


def _to_unit(parameter: Choice | Float | Int, value: Any) -> float:
    if isinstance(parameter, Choice):
        if options := _ascending(parameter):
            return (options.index(value) + 0.5) / len(options)
        return float([hashable(each) for each in parameter.options].index(hashable(value)))
    low, high, is_log = _scale(parameter)
    number = math.log(value) if is_log else float(value)
    return min(max((number - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def _from_unit(parameter: Choice | Float | Int, unit: float) -> Any:
    if isinstance(parameter, Choice):
        if options := _ascending(parameter):
            return options[min(int(unit * len(options)), len(options) - 1)]
        return parameter.options[int(unit)]
    low, high, is_log = _scale(parameter)
    number = low + unit * (high - low)
    value = math.exp(number) if is_log else number
    if parameter.step:
        value = parameter.low + parameter.step * round((value - parameter.low) / parameter.step)
    kind = int if isinstance(parameter, Int) else float
    return kind(min(max(value, parameter.low), parameter.high))
