"""Random, proposed, grid and exhaustive samplers for trials that are asked for one by one."""

import math
import secrets
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    GridSampler,
    RandomSampler,
)
from optuna.trial import FrozenTrial, TrialState

from tune_tf.space import SearchSpace
from tune_tf.space.optuna_form import stored_value
from tune_tf.tune_internals import controller

_NOTHING: Final = object()

MAX_POINTS: Final = 1_000_000
"""Maximum number of grid points; Optuna keeps all of them in memory."""


class NumberedRandomSampler(RandomSampler):
    """Random sampler that derives each value from the seed, the trial's number and the name.

    Optuna's sampler draws from one sequence, so a process killed between a draw and the next save
    continues with other configs than an undisturbed one. These are the same whatever was drawn
    before, and those of a parameter do not change when others are added. A value takes 0.1 ms.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self._seed = secrets.randbits(64) if seed is None else seed

    def reseed_rng(self) -> None:
        """Do nothing: parallel processes draw for other numbers."""

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a value."""
        words = (self._seed, trial.number, zlib.crc32(param_name.encode()))
        seed = int(np.random.SeedSequence(words).generate_state(1)[0])
        sampler = RandomSampler(seed)
        return sampler.sample_independent(study, trial, param_name, param_distribution)


class ProposalSampler(NumberedRandomSampler):
    """Sampler that takes each config from the scheduler of the running sweep.

    While the scheduler has no proposal, or outside of a sweep, configs are random ones.

    Args:
        space: The search space.
        seed: Seed of the random configs.
    """

    def __init__(self, space: SearchSpace, seed: int | None = None) -> None:
        super().__init__(seed)
        self._space = space
        self._distributions = space.distributions()
        self._proposal: dict[str, Any] = {}

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the distributions of the parameters in the scheduler's proposal."""
        self._proposal = controller.proposal() or {}
        return {path: each for path, each in self._distributions.items() if path in self._proposal}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return the proposal."""
        parameters = self._space.parameters
        return {path: stored_value(self._proposal[path], parameters[path]) for path in search_space}


class WrappingSampler(BaseSampler):
    """Base of a sampler that asks another one, except where it knows better."""

    def __init__(self, sampler: BaseSampler) -> None:
        self._sampler = sampler

    def reseed_rng(self) -> None:
        """Reseed the other sampler."""
        self._sampler.reseed_rng()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return what the other sampler draws together."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return what the other sampler draws together."""
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(self, study: optuna.Study, trial: FrozenTrial, *asked: Any) -> Any:
        """Return the other sampler's value of a parameter of a distribution."""
        return self._sampler.sample_independent(study, trial, *asked)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Notify the other sampler."""
        self._sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Notify the other sampler."""
        self._sampler.after_trial(study, trial, state, values)


class ExhaustiveSampler(WrappingSampler):
    """Grid or exhaustive sampler for trials that are asked for one by one.

    Optuna's samplers stop the loop of ``study.optimize`` when they are exhausted, and raise without
    one. Here the caller asks :meth:`exhausted` first.

    Args:
        sampler: The Optuna sampler.
        points: Values of each parameter of a grid, by path; None if only the sampler knows them.
    """

    def __init__(
        self,
        sampler: GridSampler | BruteForceSampler,
        points: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        super().__init__(sampler)
        self._points = points

    def exhausted(self, study: optuna.Study) -> bool:
        """Return whether every config has been assigned, or, of a user's grid, has finished."""
        trials = study.get_trials(deepcopy=False)
        if self._points is not None:
            assigned = {
                tuple(trial.params[path] for path in self._points)
                for trial in trials
                # Imported trials may not be on this grid.
                if all(trial.params.get(path, _NOTHING) in v for path, v in self._points.items())
            }
            return len(assigned) >= math.prod(map(len, self._points.values()))
        if isinstance(self._sampler, GridSampler):
            return self._sampler.is_exhausted(study)
        return _is_exhausted(self._sampler, study, trials)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Do nothing: Optuna's samplers only stop a loop here, and there is none."""


def _is_exhausted(sampler: BaseSampler, study: optuna.Study, trials: Sequence[FrozenTrial]) -> bool:
    """Return whether an exhaustive search has no config left to assign.

    At the end of a trial Optuna's sampler stops the loop if nothing is left, counting running
    trials as done. Without a loop, stopping raises RuntimeError, which is the answer.
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
    """Return the values of each parameter, by path."""
    return {path: list(_values(distribution)) for path, distribution in distributions.items()}


def is_continuous(distribution: BaseDistribution) -> bool:
    """Return whether a parameter has infinitely many values."""
    return isinstance(distribution, FloatDistribution) and distribution.step is None


def num_values(distribution: BaseDistribution) -> int:
    """Return the number of values of a parameter."""
    if isinstance(distribution, FloatDistribution) and distribution.step is not None:
        return round((distribution.high - distribution.low) / distribution.step) + 1
    return len(_values(distribution))


def _values(distribution: BaseDistribution) -> Sequence[Any]:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return choices
        case IntDistribution(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case FloatDistribution(low=low, step=float(step)):
            # In decimals, as 0.1 + 0.1 + 0.1 is not 0.3.
            first, width = Decimal(str(low)), Decimal(str(step))
            return [float(first + index * width) for index in range(num_values(distribution))]
    raise TypeError(f"{distribution!r} has infinitely many values")
