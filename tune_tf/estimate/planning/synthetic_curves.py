"""Synthetic learning curves for a search space without known ones."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tune_tf.objective import Objective
from tune_tf.simulation.problem import Problem, Values
from tune_tf.simulation.test_functions import falling, rough
from tune_tf.space import Choice, Float, Int, SearchSpace
from tune_tf.space.parameter import Parameter

_NOISE = 0.03
_UNKNOWN = 0.5  # position in the range of a parameter that is missing from the config


def synthetic_problem(
    space: SearchSpace, objective: Objective, *, max_t: int, seed: int, cost_s: Any
) -> Problem:
    """Return a problem with random learning curves over a search space.

    The seed draws the best value and the weight of each parameter. Losses fall at different speeds,
    so that curves cross and short runs rank configs only roughly. ``cost_s`` returns the virtual
    seconds per iteration of a flat config.
    """
    rng = np.random.default_rng(seed)
    terms = {
        path: _Term.drawn(parameter, rng)
        for path, parameter in space.parameters.items()
        if isinstance(parameter, Choice | Float | Int)
    }
    sign = -1.0 if objective.mode == "max" else 1.0

    def curve(values: Values, iteration: int) -> float:
        progress = iteration / max_t
        units = [term.unit(values.get(path)) for path, term in terms.items()] or [_UNKNOWN]
        quality = sum(
            term.weight * (unit - term.best) ** 2
            for term, unit in zip(terms.values(), units, strict=False)
        )
        tau = 0.1 + 0.2 * (units[0] if units else _UNKNOWN)
        loss = quality + (0.5 + quality) * falling(progress, tau)
        return float(sign * (loss + rough(units, progress, _NOISE)))

    return Problem(
        name="surrogate",
        about="Made up for a space of which nothing is known.",
        space=space,
        objective=objective,
        max_t=max_t,
        curve=curve,
        target=math.inf if objective.mode == "max" else -math.inf,
        cost_s=cost_s,
    )


class _Term:
    """Contribution of one parameter to the loss.

    Args:
        best: Best position in the range, 0 to 1.
        weight: Loss at a distance of the whole range.
        order: Positions of the options of a choice, 0 to 1, by index.
    """

    def __init__(
        self, parameter: Parameter, best: float, weight: float, order: Mapping[int, float]
    ) -> None:
        self._parameter = parameter
        self._order = order
        self.best = best
        self.weight = weight

    @classmethod
    def drawn(cls, parameter: Parameter, rng: np.random.Generator) -> "_Term":
        """Return a random term."""
        count = len(parameter.options) if isinstance(parameter, Choice) else 0
        order = {index: float(rng.uniform()) for index in range(count)}
        return cls(parameter, float(rng.uniform()), float(rng.exponential()), order)

    def unit(self, value: Any) -> float:
        """Return the position of a value in the range, 0 to 1."""
        if value is None:
            return _UNKNOWN
        parameter = self._parameter
        if isinstance(parameter, Choice):
            return self._order[list(parameter.options).index(value)]
        low, high = float(parameter.low), float(parameter.high)  # type: ignore[attr-defined]
        if parameter.log:  # type: ignore[attr-defined]
            low, high, value = math.log(low), math.log(high), math.log(value)
        return float((value - low) / (high - low)) if high > low else _UNKNOWN
