"""Problems with known learning curves: formulas, and tables of real training.

Each formula is a loss at full fidelity and a curve that ends there, designed by how well short
runs rank configs, not by the results of searchers. Targets are the 0.001 quantiles of ten million
random configs.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tune_tf.objective import Objective
from tune_tf.space import Choice, Float, Int, SearchSpace, flatten

TABLES = Path(__file__).parents[1] / "tables"
MAX_T = 27
EPOCH_S = 60.0
_BEST_SHARE = 0.001
_MAX_CODE = 65535
_NUM_POINTS = 200_000  # between the grid points, to find the target

Values = Mapping[str, Any]
"""Flat config, or many configs as one array per parameter."""


@dataclass(frozen=True)
class Problem:
    """Search space with known learning curves.

    Args:
        max_t: Iterations of a full run.
        curve: Function from a flat config and an iteration, 1 to ``max_t``, to the metric.
        target: Value at full fidelity that one in 1,000 random configs reaches.
        cost: Function that returns the cost of an iteration of a flat config, 1 on average.
        held_out: Whether the problem is reserved for evaluation and nothing may be tuned on it.
    """

    name: str
    space: SearchSpace
    objective: Objective
    curve: Callable[[Values, int], Any]
    target: float
    cost: Callable[[Values], Any] = lambda values: 1.0
    held_out: bool = False
    max_t: int = MAX_T

    def value(self, config: Mapping[str, Any], iteration: int) -> float:
        """Return the metric of a nested config after an iteration."""
        return float(self.curve(flatten(config, self.space.parameters), iteration))

    def is_solved_by(self, value: float) -> bool:
        """Return whether a value at full fidelity is at least as good as the target."""
        return not self.objective.better(self.target, value)

    def seconds(self, config: Mapping[str, Any]) -> float:
        """Return the virtual seconds per iteration of a nested config."""
        return EPOCH_S * float(self.cost(flatten(config, self.space.parameters)))


_BRANIN_MINIMUM = 0.39788735772973816
_HARTMANN6_MINIMUM = -3.32236801141551
_HARTMANN6_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN6_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
_HARTMANN6_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])


def branin(x1: Any, x2: Any) -> Any:
    """Branin function on [-5, 10] x [0, 15]; three minima of 0.3979.

    Source: Dixon and Szego, Towards Global Optimization 2, 1978;
    https://www.sfu.ca/~ssurjano/branin.html
    """
    bowl = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(x1) + 10


def hartmann6(x: Sequence[Any]) -> Any:
    """Six-dimensional Hartmann function on [0, 1]; minimum -3.322.

    Source: Dixon and Szego, 1978; https://www.sfu.ca/~ssurjano/hart6.html
    """
    total = 0.0
    for alpha, rates, centre in zip(_HARTMANN6_ALPHA, _HARTMANN6_A, _HARTMANN6_P, strict=True):
        inner = sum(a * (xi - p) ** 2 for a, p, xi in zip(rates, centre, x, strict=True))
        total = total - alpha * np.exp(-inner)
    return total


def option_loss(option: Any, offsets: Mapping[str, float]) -> Any:
    """Return the offset of an option, or an array of offsets for an array of options."""
    if isinstance(option, str):
        return offsets[option]
    return np.vectorize(offsets.__getitem__, otypes=[float])(option)


def excess_loss(progress: float, tau: Any) -> Any:
    """Return the excess loss that is left: exp(-p / tau), shifted to reach 0 at the end.

    Args:
        progress: Share of the iterations done, above 0 to 1.
        tau: Share of the iterations in which the excess falls to 1/e.
    """
    return np.exp(-progress / tau) - np.exp(-1 / tau)


def crossing_loss(units: Sequence[Any], progress: float) -> Any:
    """Return an excess loss whose start and decay differ by region, so that curves cross.

    Both are smooth waves over the space, independent of the quality of a config: the start ranges
    from 0.2 to 1.8, tau from 0.08 to 0.5 of the iterations.

    Args:
        units: Parameters scaled to [0, 1].
        progress: Share of the iterations done.
    """
    phase = sum((number + 1) * unit for number, unit in enumerate(units))
    start = 1 + 0.8 * np.cos(2 * math.pi * phase)
    return start * excess_loss(progress, 0.29 + 0.21 * np.sin(2 * math.pi * phase))


def curve_noise(units: Sequence[Any], progress: float, size: float) -> Any:
    """Return noise that is fixed per config and iteration, and 0 at full fidelity.

    Uniform, with standard deviation ``size`` at the start; the sine hash common in shaders.
    """
    seed = sum((12.9898 + 7.233 * number) * unit for number, unit in enumerate(units))
    hashed = np.sin(seed * 1e3 + 78.233 * progress) * 43758.5453
    return size * math.sqrt(12) * (hashed - np.floor(hashed) - 0.5) * (1 - progress)


def _branin(values: Values, progress: float) -> Any:
    x1, x2 = values["x1"], values["x2"]
    units = ((x1 + 5) / 15, x2 / 15)
    loss = np.log1p(branin(x1, x2) - _BRANIN_MINIMUM)
    loss = loss + 2.0 * crossing_loss(units, progress)
    return loss + curve_noise(units, progress, 0.05)


def _hartmann6(values: Values, progress: float) -> Any:
    x = [values[f"x{number}"] for number in range(1, 7)]
    loss = hartmann6(x) - _HARTMANN6_MINIMUM
    loss = loss + 1.2 * crossing_loss(x, progress)
    return loss + curve_noise(x, progress, 0.03)


_FAITHFUL_RATES = {"adam": -3.0, "lion": -4.0, "rmsprop": -3.3, "sgd": -1.5}
_FAITHFUL_OPTIMIZERS = {"adam": 0.0, "lion": 0.04, "rmsprop": 0.08, "sgd": 0.12}
_FAITHFUL_ACTIVATIONS = {"elu": 0.12, "gelu": 0.0, "relu": 0.1, "selu": 0.2, "tanh": 0.25}


def _faithful(values: Values, progress: float) -> Any:
    rate = np.log10(values["learning_rate"])
    decay = np.log10(values["weight_decay"])
    dropout, layers = values["dropout"], values["num_layers"]
    loss = (
        0.1
        + 0.15 * (rate - option_loss(values["optimizer"], _FAITHFUL_RATES)) ** 2
        + option_loss(values["optimizer"], _FAITHFUL_OPTIMIZERS)
        + option_loss(values["activation"], _FAITHFUL_ACTIVATIONS)
        + 0.02 * (decay + 3) ** 2
        + 0.8 * (dropout - 0.25) ** 2
        + 0.03 * (layers - 4) ** 2
    )
    units = ((rate + 5) / 4, (decay + 6) / 5, dropout / 0.7)
    loss = loss + (1 + 0.3 * loss) * excess_loss(progress, 0.2)
    return loss + curve_noise(units, progress, 0.02)


def _layers_cost(values: Values) -> Any:
    return 0.4 + 0.15 * values["num_layers"]


_MISLEADING_EARLY = {"constant": 0.0, "cosine": 0.3, "step": 0.1}
_MISLEADING_LATE = {"constant": 0.2, "cosine": 0.0, "step": 0.1}
_MISLEADING_OPTIMA = (0.35, 0.6, 0.4, 0.7)
_MISLEADING_MOVES = (0.12, -0.12, 0.12, -0.12)
_MISLEADING_WEIGHTS = (3.0, 1.5, 1.0, 0.5)


def _misleading(values: Values, progress: float) -> Any:
    units = (
        (np.log10(values["learning_rate"]) + 5) / 4,
        (np.log10(values["weight_decay"]) + 6) / 5,
        values["momentum"] / 0.99,
        values["warmup"],
    )
    loss = 0.1 + (1 - progress) * option_loss(values["schedule"], _MISLEADING_EARLY)
    loss = loss + progress * option_loss(values["schedule"], _MISLEADING_LATE)
    terms = zip(units, _MISLEADING_OPTIMA, _MISLEADING_MOVES, _MISLEADING_WEIGHTS, strict=True)
    for unit, optimum, move, weight in terms:
        loss = loss + weight * (unit - optimum - move * (1 - progress) ** 2) ** 2
    loss = loss + excess_loss(progress, 0.25)
    return loss + curve_noise(units, progress, 0.02)


_CONDITIONAL_LOSSES = {"linear": 0.25, "network": 0.0, "trees": 0.04}


def _conditional(values: Values, progress: float) -> Any:
    kind = np.asarray(values["kind"])

    def unit(path: str) -> Any:
        return np.asarray(values.get(path, 0.5), dtype=float)

    depth = (unit("trees/depth") - 2) / 10
    rate = (np.log10(unit("network/learning_rate")) + 5) / 4
    of_kind = {
        "linear": 0.3 * (unit("linear/penalty") - 0.3) ** 2,
        "network": 2 * (rate - 0.5) ** 2 + (unit("network/dropout") - 0.3) ** 2,
        "trees": (depth - 0.6) ** 2 + 0.5 * (unit("trees/share") - 0.7) ** 2,
    }
    loss = np.select([kind == each for each in of_kind], list(of_kind.values()))
    loss = 0.1 + loss + option_loss(values["kind"], _CONDITIONAL_LOSSES)
    loss = loss + 0.2 * (unit("scale") - 0.5) ** 2
    # Networks start slowly and end best.
    tau = np.where(kind == "network", 0.2, 0.1)
    loss = loss + 0.8 * excess_loss(progress, tau)
    return loss + curve_noise([unit("scale"), loss], progress, 0.03)


class _Definition(NamedTuple):
    """Definition of a problem; ``loss`` is a function of a config and the completed fraction."""

    loss: Callable[[Values, float], Any]
    parameters: dict[str, Any]
    target: float
    cost: Callable[[Values], Any] = lambda values: 1.0
    held_out: bool = False


_DEFINITIONS = {
    "branin": _Definition(
        _branin,
        {"x1": Float(-5.0, 10.0), "x2": Float(0.0, 15.0)},
        target=0.0511396,
    ),
    "hartmann6": _Definition(
        _hartmann6,
        {f"x{number}": Float(0.0, 1.0) for number in range(1, 7)},
        target=0.664683,
    ),
    "mixed_faithful": _Definition(
        _faithful,
        {
            "optimizer": Choice(sorted(_FAITHFUL_OPTIMIZERS)),
            "activation": Choice(sorted(_FAITHFUL_ACTIVATIONS)),
            "num_layers": Int(1, 6),
            "learning_rate": Float(1e-5, 1e-1, log=True),
            "weight_decay": Float(1e-6, 1e-1, log=True),
            "dropout": Float(0.0, 0.7),
        },
        target=0.151929,
        cost=_layers_cost,
    ),
    "misleading": _Definition(
        _misleading,
        {
            "schedule": Choice(sorted(_MISLEADING_LATE)),
            "learning_rate": Float(1e-5, 1e-1, log=True),
            "weight_decay": Float(1e-6, 1e-1, log=True),
            "momentum": Float(0.0, 0.99),
            "warmup": Float(0.0, 1.0),
        },
        target=0.13039,
    ),
    "conditional": _Definition(
        _conditional,
        {
            "kind": Choice(sorted(_CONDITIONAL_LOSSES)),
            "scale": Float(0.0, 1.0),
            "linear/penalty": Float(0.0, 1.0, when={"kind": "linear"}),
            "network/learning_rate": Float(1e-5, 1e-1, log=True, when={"kind": "network"}),
            "network/dropout": Float(0.0, 0.7, when={"kind": "network"}),
            "trees/depth": Int(2, 12, when={"kind": "trees"}),
            "trees/share": Float(0.2, 1.0, when={"kind": "trees"}),
        },
        target=0.104621,
        held_out=True,
    ),
}

PROBLEMS = (*_DEFINITIONS, *sorted(path.stem for path in TABLES.glob("*.npz")))
"""Names of all problems."""


def read_problem(name: str) -> Problem:
    """Return a problem by name."""
    if name not in _DEFINITIONS:
        return _read_table(TABLES / f"{name}.npz")
    loss, parameters, target, cost, held_out = _DEFINITIONS[name]

    def curve(values: Values, iteration: int) -> Any:
        return loss(values, iteration / MAX_T)

    space, objective = SearchSpace(parameters), Objective("val_loss", "min")
    return Problem(name, space, objective, curve, target, cost, held_out)


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


def _read_table(path: Path) -> Problem:
    """Read a table of learning curves, as of real models trained at each point of a grid.

    ``curves``, of type uint16 and shape ``[*axes, iteration]``, encodes the logarithm of the metric
    between two bounds; ``description`` is JSON.
    """
    with np.load(path, allow_pickle=False) as file:
        codes, description = file["curves"], json.loads(str(file["description"]))
    objective = Objective(description["metric"], description["mode"])
    space = SearchSpace(description["space"])
    parameters: Mapping[str, Any] = space.parameters
    axes = {name: _Axis(parameters[name], grid) for name, grid in description["axes"].items()}
    low, high = description["log_low"], description["log_high"]
    grid = _Grid(axes, low + codes / _MAX_CODE * (high - low))
    target = grid.target(objective, MAX_T)
    held_out = bool(description.get("held_out", False))
    return Problem(path.stem, space, objective, grid.value, target, held_out=held_out)
