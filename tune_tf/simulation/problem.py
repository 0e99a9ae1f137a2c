"""Problem for simulated sweeps: a search space with known learning curves, or a table of them."""

import itertools
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.space import Choice, Float, Int, SearchSpace, flatten

_BEST_SHARE: Final = 0.001
_MAX_CODE: Final = 65535
_NUM_POINTS: Final = 200_000  # between the grid points, to find the target

EPOCH_S = 60.0
"""Default virtual seconds per iteration."""

Values = Mapping[str, Any]
"""Flat config, or many configs as one array per parameter."""


def default_cost_s(values: Values) -> float:
    """Return :data:`EPOCH_S` for any config."""
    return EPOCH_S


@dataclass(frozen=True)
class Problem:
    """Search space with known learning curves.

    Args:
        about: Sentence on its origin and difficulty.
        max_t: Iterations of a full run (full fidelity).
        curve: Function from a flat config and an iteration, 1 to ``max_t``, to the metric.
        target: Value at full fidelity that one in 1,000 random configs reaches.
        cost_s: Function that returns the virtual seconds per iteration of a flat config.
        held_out: Whether the problem is reserved for evaluation and nothing may be tuned on it.

    Raises:
        InvalidSettingsError: ``max_t`` is not a positive whole number.
    """

    name: str
    about: str
    space: SearchSpace
    objective: Objective
    max_t: int
    curve: Callable[[Values, int], Any]
    target: float
    cost_s: Callable[[Values], Any] = default_cost_s
    held_out: bool = False

    def __post_init__(self) -> None:
        """Validate the settings."""
        if isinstance(self.max_t, bool) or not isinstance(self.max_t, int) or self.max_t < 1:
            raise InvalidSettingsError(
                [f"max_t must be an integer of at least 1, not {self.max_t!r}"]
            )

    def value(self, config: Mapping[str, Any], iteration: int) -> float:
        """Return the metric of a nested config after an iteration; constant from ``max_t`` on."""
        values = flatten(config, self.space.parameters)
        return float(self.curve(values, min(iteration, self.max_t)))

    def reaches_target(self, value: float) -> bool:
        """Return whether a value at full fidelity is at least as good as the target."""
        return not self.objective.better(self.target, value)

    def seconds(self, config: Mapping[str, Any]) -> float:
        """Return the virtual seconds per iteration of a nested config."""
        return float(self.cost_s(flatten(config, self.space.parameters)))


@dataclass(frozen=True)
class _Axis:
    """Grid values of one parameter, ascending unless it is a choice."""

    parameter: Choice | Float | Int
    values: Sequence[Any]

    def neighbours(self, values: Any) -> list[tuple[Any, Any]]:
        """Return the grid points around some values, as indices, each with its weight."""
        if isinstance(self.parameter, Choice):
            return [(np.vectorize(self.values.index, otypes=[int])(values), 1.0)]
        grid = self._scaled(np.asarray(self.values, dtype=float))
        position = np.interp(self._scaled(values), grid, np.arange(len(grid)))
        below = np.minimum(np.floor(position).astype(int), max(len(grid) - 2, 0))
        share = position - below
        return [(below, 1 - share), (np.minimum(below + 1, len(grid) - 1), share)]

    def spread(self, num_points: int) -> Any:
        """Return equally likely values of the parameter: all, or so many of a continuous one."""
        if isinstance(self.parameter, Choice):
            return np.array(self.values)
        low, high = self.parameter.low, self.parameter.high
        if isinstance(self.parameter, Int) and not self.parameter.log:
            return np.arange(low, high + 1, self.parameter.step or 1)
        low, high = self._scaled(low), self._scaled(high)
        middles = low + (high - low) * (np.arange(num_points) + 0.5) / max(num_points, 1)
        values = np.exp(middles) if self.parameter.log else middles
        return np.round(values) if isinstance(self.parameter, Int) else values

    def _scaled(self, value: Any) -> Any:
        log = not isinstance(self.parameter, Choice) and self.parameter.log
        return np.log(value) if log else value


@dataclass(frozen=True)
class _Grid:
    """Grid values by path, and logarithms of learning curves ``[*axes, iteration - 1]``."""

    axes: Mapping[str, _Axis]
    curves: npt.NDArray[np.float64]

    def value(self, values: Values, iteration: int) -> Any:
        """Return the metric between the nearest grid points.

        Its logarithm is linear in each parameter, on the parameter's scale.
        """
        around = [axis.neighbours(values[path]) for path, axis in self.axes.items()]
        curves = self.curves[..., iteration - 1]
        log: Any = 0.0
        for corner in itertools.product(*around):
            indices, weights = zip(*corner, strict=True)
            log = log + curves[indices] * math.prod(weights)
        return np.exp(log)

    def target(self, objective: Objective, max_t: int) -> float:
        """Return the value that the best 0.1 % of all configs reach at full fidelity."""
        discrete = [len(axis.spread(0)) for axis in self.axes.values()]
        num_continuous = discrete.count(0)
        num_points = (_NUM_POINTS / math.prod(filter(None, discrete))) ** (
            1 / max(num_continuous, 1)
        )
        spread = np.meshgrid(
            *(axis.spread(math.ceil(num_points)) for axis in self.axes.values()), sparse=True
        )
        finals = self.value(dict(zip(self.axes, spread, strict=True)), max_t)
        best = _BEST_SHARE if objective.mode == "min" else 1 - _BEST_SHARE
        return float(np.quantile(finals, best))


def read_curve_table(path: str | Path, *, max_t: int | None = None) -> Problem:
    """Read a problem from a table of learning curves.

    The file is written by ``numpy.savez``. ``curves``, of type uint16 and shape
    ``[*axes, iteration]``, encodes the logarithm of the metric between two bounds. ``description``
    is JSON with ``name``, ``source``, ``metric``, ``mode``, ``log_low``, ``log_high``, ``space``
    (as in a sweep file), ``axes`` (grid values by path) and optionally ``held_out``.

    Between grid points the logarithm of the metric is linear in each parameter, on its scale, so
    that two configs differ as they do when trained. A full run has ``max_t`` iterations; all
    iterations of the table if None.

    Raises:
        InvalidSettingsError: The file is unreadable, not such a table, or has fewer iterations.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            codes, description = file["curves"], json.loads(str(file["description"]))
        objective = Objective(description["metric"], description["mode"])
        space = SearchSpace.from_dict(description["space"])
        axes = {path: _axis(space, path, grid) for path, grid in description["axes"].items()}
        low, high = description["log_low"], description["log_high"]
        name, source = description["name"], description["source"]
        held_out = bool(description.get("held_out", False))
    except FileNotFoundError as error:
        raise InvalidSettingsError([f"there is no file {path}"]) from error
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidSettingsError(
            [f"{path} is not a table of learning curves: {type(error).__name__}: {error}"]
        ) from error
    longest = codes.shape[-1]
    if max_t is None:
        max_t = longest
    if not 1 <= max_t <= longest:
        raise InvalidSettingsError(
            [f"max_t={max_t}: {path} has {longest} iterations; ask for 1 to {longest}"]
        )
    grid = _Grid(axes, low + codes / _MAX_CODE * (high - low))
    return Problem(
        name=name,
        about=f"Interpolated between {codes.size // longest} configs: {source}.",
        space=space,
        objective=objective,
        max_t=max_t,
        curve=grid.value,
        target=grid.target(objective, max_t),
        held_out=held_out,
    )


def _axis(space: SearchSpace, path: str, values: Sequence[Any]) -> _Axis:
    parameter = space.parameters[path]
    if not isinstance(parameter, Choice | Float | Int):
        raise ValueError(f"{path} is a constant, which needs no axis")
    return _Axis(parameter, values)
