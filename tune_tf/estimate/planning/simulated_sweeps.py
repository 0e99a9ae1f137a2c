"""Sweeps simulated on synthetic learning curves: how many epochs a scheduler lets trials run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna

from tune_tf.config import SweepConfig
from tune_tf.objective import Objective
from tune_tf.searchers import OptunaSearcher
from tune_tf.simulation import Trace, simulate
from tune_tf.simulation.curve_functions import curve_noise, excess_loss
from tune_tf.simulation.problem import Problem, Values
from tune_tf.space import Choice, Float, Int, SearchSpace
from tune_tf.sweep.plan import make_scheduler

_MAX_TRIALS = 100  # to simulate; larger sweeps are extrapolated in proportion to their trials
_MIN_TRIALS_PER_SLOT = 4
_NOISE = 0.03
_UNKNOWN = 0.5  # position in the range of a parameter that is missing from the config
_SLOW_SAMPLER = "gp"  # needs packages that may be missing, and seconds per proposal


@dataclass(frozen=True)
class SimulatedSweeps:
    """Simulations of a sweep, which has ``growth`` times as many trials, with several seeds."""

    traces: tuple[Trace, ...]
    growth: float
    sampler: str


def simulate_sweeps(
    config: SweepConfig,
    epoch_s: Callable[[Mapping[str, Any]], float],
    *,
    num_slots: int,
    num_seeds: int,
    mutations: Sequence[str] | None = None,
) -> SimulatedSweeps:
    """Simulate a sweep with its own scheduler on synthetic learning curves.

    ``epoch_s`` returns the seconds per iteration of a flat config; ``mutations`` are the parameters
    that the scheduler changes, None for those of the settings.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler: str = config.searcher.sampler
    if sampler == _SLOW_SAMPLER or len(config.objectives) > 1:
        sampler = "random"
    num_samples = min(config.budget.num_samples, max(_MAX_TRIALS, _MIN_TRIALS_PER_SLOT * num_slots))
    objective = config.leading_objective
    traces = tuple(
        simulate(
            synthetic_problem(
                config.space, objective, max_t=config.scheduler.max_t, seed=seed, cost_s=epoch_s
            ),
            OptunaSearcher(config.space, objective, sampler, seed=seed),
            make_scheduler(config, mutations),
            num_workers=num_slots,
            num_samples=num_samples,
            max_concurrent_trials=num_slots,
            seed=seed,
        )
        for seed in range(num_seeds)
    )
    return SimulatedSweeps(traces, config.budget.num_samples / num_samples, sampler)


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
        path: _Term.draw(parameter, rng)
        for path, parameter in space.parameters.items()
        if isinstance(parameter, Choice | Float | Int)
    }
    sign = -1.0 if objective.mode == "max" else 1.0

    def curve(values: Values, iteration: int) -> float:
        progress = iteration / max_t
        positions = [term.position_of(values.get(path)) for path, term in terms.items()]
        quality = sum(
            term.weight * (position - term.best) ** 2
            for term, position in zip(terms.values(), positions, strict=True)
        )
        positions = positions or [_UNKNOWN]
        loss = quality + (0.5 + quality) * excess_loss(progress, 0.1 + 0.2 * positions[0])
        return float(sign * (loss + curve_noise(positions, progress, _NOISE)))

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


@dataclass(frozen=True)
class _Term:
    """Contribution of one parameter to the loss.

    Args:
        order: Positions of the options of a choice, 0 to 1.
        best: Best position in the range, 0 to 1.
        weight: Loss at a distance of the whole range.
    """

    parameter: Choice | Float | Int
    order: tuple[float, ...]
    best: float
    weight: float

    @classmethod
    def draw(cls, parameter: Choice | Float | Int, rng: np.random.Generator) -> "_Term":
        count = len(parameter.options) if isinstance(parameter, Choice) else 0
        order = tuple(float(rng.uniform()) for _ in range(count))
        return cls(parameter, order, float(rng.uniform()), float(rng.exponential()))

    def position_of(self, value: Any) -> float:
        """Return the position of a value in the range, 0 to 1."""
        parameter = self.parameter
        if value is None:
            return _UNKNOWN
        if isinstance(parameter, Choice):
            return self.order[list(parameter.options).index(value)]
        low, high = float(parameter.low), float(parameter.high)
        if parameter.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return float((value - low) / (high - low)) if high > low else _UNKNOWN
