"""Learning curves made up for a search space of which nothing is known."""

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
_UNKNOWN = 0.5  # where a parameter that a config does not have stands in its range


def synthetic_problem(
    space: SearchSpace, objective: Objective, *, max_t: int, seed: int, cost_s: Any
) -> Problem:
    """Return a problem over a space: how many epochs a scheduler spends hangs on it only loosely.

    Each parameter has a best value and a weight that the seed draws; losses fall with the
    iterations at their own speeds, so that curves cross, and short runs show a part of the truth.

    Args:
        space: What is searched.
        objective: The leading one.
        max_t: Iterations of a trial that runs to its limit.
        seed: Of the landscape.
        cost_s: Takes a flat config and returns the virtual seconds of an iteration.
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
    """What one parameter adds to the loss.

    Args:
        parameter: The parameter.
        best: Where it is best, 0 to 1 over its range.
        weight: What the whole range costs.
        order: Of options, how they lie in the range.
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
        """Return a term that a generator draws."""
        count = len(parameter.options) if isinstance(parameter, Choice) else 0
        order = {index: float(rng.uniform()) for index in range(count)}
        return cls(parameter, float(rng.uniform()), float(rng.exponential()), order)

    def unit(self, value: Any) -> float:
        """Return where a value lies, 0 to 1."""
        if value is None:
            return _UNKNOWN
        parameter = self._parameter
        if isinstance(parameter, Choice):
            return self._order[list(parameter.options).index(value)]
        low, high = float(parameter.low), float(parameter.high)  # type: ignore[attr-defined]
        if parameter.log:  # type: ignore[attr-defined]
            low, high, value = math.log(low), math.log(high), math.log(value)
        return float((value - low) / (high - low)) if high > low else _UNKNOWN
