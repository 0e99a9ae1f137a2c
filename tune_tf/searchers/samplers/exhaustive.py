"""Samplers that come to an end."""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, BruteForceSampler, GridSampler
from optuna.trial import FrozenTrial, TrialState

_NOTHING: Final = object()

MOST_POINTS: Final = 1_000_000
"""How many points a grid may have; Optuna holds all of them in memory."""


class ExhaustiveSampler(BaseSampler):
    """A grid or an exhaustive search where trials are asked for one by one.

    Optuna's own tell the loop of ``study.optimize`` to stop, and raise where there is none. Here
    whoever asks looks first whether there is anything left.

    Args:
        sampler: Optuna's sampler.
        points: Values of each parameter of a grid, by path; None where the sampler alone knows.
    """

    def __init__(
        self,
        sampler: GridSampler | BruteForceSampler,
        points: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self._sampler = sampler
        self._points = points

    @property
    def num_points(self) -> int | None:
        """How many configs there are; None if it is not known beforehand."""
        return None if self._points is None else math.prod(map(len, self._points.values()))

    def exhausted(self, study: optuna.Study) -> bool:
        """Return whether every config has been handed out, finished or not.

        A grid that the user made is exhausted only when its last trial has ended: what it consists
        of is its own affair.
        """
        trials = study.get_trials(deepcopy=False)
        if self._points is not None:
            taken = {
                tuple(trial.params[path] for path in self._points)
                for trial in trials
                # An earlier sweep may have tried what is not on this grid.
                if all(trial.params.get(path, _NOTHING) in v for path, v in self._points.items())
            }
            return len(taken) >= math.prod(map(len, self._points.values()))
        if isinstance(self._sampler, GridSampler):
            return self._sampler.is_exhausted(study)
        return _nothing_is_left(self._sampler, study, trials)

    def reseed_rng(self) -> None:
        """Seed afresh."""
        self._sampler.reseed_rng()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return nothing: parameters come one by one."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return nothing: parameters come one by one."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the value of a parameter at the trial's point."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Choose the trial's point."""
        self._sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Do nothing: all that Optuna's do here is to stop a loop, and there is none."""


def _nothing_is_left(
    sampler: BruteForceSampler, study: optuna.Study, trials: Sequence[FrozenTrial]
) -> bool:
    """Return whether an exhaustive search has no config left to hand out.

    At the end of a trial Optuna's sampler stops the loop if there is nothing left, running trials
    counted as done. Outside of a loop the stop raises, which is the answer.
    """
    asked = [trial for trial in trials if trial.params and trial.state is not TrialState.WAITING]
    if not asked:
        return False
    try:
        sampler.after_trial(study, asked[-1], TrialState.PRUNED, None)
    except RuntimeError:
        return True
    return False


def grid_points(distributions: Mapping[str, BaseDistribution]) -> dict[str, list[Any]]:
    """Return the values of each parameter, by path.

    Raises:
        TypeError: A parameter has endlessly many.
    """
    return {
        path: [value_at(distribution, index) for index in range(num_values(distribution))]
        for path, distribution in distributions.items()
    }


def num_values(distribution: BaseDistribution) -> int:
    """Return how many values a parameter has.

    Raises:
        TypeError: It has endlessly many.
    """
    match distribution:
        case CategoricalDistribution(choices=choices):
            return len(choices)
        case IntDistribution(low=low, high=high, step=step):
            return (high - low) // step + 1
        case FloatDistribution(low=low, high=high, step=float(step)):
            return round((high - low) / step) + 1
    raise TypeError(f"{distribution!r} has endlessly many values")


def value_at(distribution: BaseDistribution, index: int) -> Any:
    """Return a value of a parameter that has finitely many, counted from 0."""
    match distribution:
        case CategoricalDistribution(choices=choices):
            return choices[index]
        case IntDistribution(low=low, step=step):
            return low + index * step
        case FloatDistribution(low=low, step=float(step)):
            # In decimals, as 0.1 + 0.1 + 0.1 is not 0.3.
            return float(Decimal(str(low)) + index * Decimal(str(step)))
    raise TypeError(f"{distribution!r} has endlessly many values")
