"""Problem for simulated sweeps: a search space with known learning curves, or a table of them."""

import json
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

    def seconds(self, config: Mapping[str, Any]) -> float:
        """Return the virtual seconds per iteration of a nested config."""
        return float(self.cost_s(flatten(config, self.space.parameters)))


@dataclass(frozen=True)
class _Axis:
    """Grid values of one parameter, ascending unless it is a choice."""

    parameter: Choice | Float | Int
    values: Sequence[Any]

    def nearest(self, value: Any) -> int:
        """Return the index of the nearest grid value, on the scale of the parameter."""
        if isinstance(self.parameter, Choice):
            return self.values.index(value)
        return int(np.searchsorted(self._borders(), self._scaled(value)))

    def shares(self) -> npt.NDArray[np.float64]:
        """Return the probability that each grid value is the nearest to a random value."""
        if isinstance(self.parameter, Choice):
            return np.full(len(self.values), 1 / len(self.values))
        low, high = (self._scaled(end) for end in (self.parameter.low, self.parameter.high))
        borders = np.clip(np.concatenate(([low], self._borders(), [high])), low, high)
        return np.diff(borders) / (high - low)

    def _borders(self) -> Any:
        scaled = self._scaled(np.asarray(self.values, dtype=float))
        return (scaled[1:] + scaled[:-1]) / 2

    def _scaled(self, value: Any) -> Any:
        log = not isinstance(self.parameter, Choice) and self.parameter.log
        return np.log(value) if log else value


@dataclass(frozen=True)
class _Grid:
    """Grid values by path, and learning curves ``[*axes, iteration - 1]``."""

    axes: Mapping[str, _Axis]
    curves: npt.NDArray[np.float64]

    def value(self, values: Values, iteration: int) -> float:
        """Return the metric of the nearest grid point."""
        point = tuple(axis.nearest(values[path]) for path, axis in self.axes.items())
        return float(self.curves[(*point, iteration - 1)])

    def target(self, objective: Objective, max_t: int) -> float:
        """Return the exact value that the best 0.1 % of random configs reach at full fidelity.

        If one grid point makes up more than that, it is the value of the best point.
        """
        shares = np.ones(())
        for axis in self.axes.values():
            shares = np.multiply.outer(shares, axis.shares())
        finals = self.curves[..., max_t - 1].ravel()
        order = np.argsort(finals if objective.mode == "min" else -finals, kind="stable")
        reached = np.cumsum(shares.ravel()[order]) >= _BEST_SHARE
        return float(finals[order[int(np.argmax(reached))]])


def read_curve_table(path: str | Path, *, max_t: int | None = None) -> Problem:
    """Read a problem from a table of learning curves.

    The file is written by ``numpy.savez``. ``curves``, of type uint16 and shape
    ``[*axes, iteration]``, encodes the logarithm of the metric between two bounds. ``description``
    is JSON with ``name``, ``source``, ``metric``, ``mode``, ``log_low``, ``log_high``, ``space``
    (as in a sweep file), ``axes`` (grid values by path) and optionally ``held_out``.

    A full run has ``max_t`` iterations; all iterations of the table if None.

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
    grid = _Grid(axes, np.exp(low + codes / _MAX_CODE * (high - low)))
    return Problem(
        name=name,
        about=f"Looked up at the nearest of {codes.size // longest} configs: {source}.",
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
