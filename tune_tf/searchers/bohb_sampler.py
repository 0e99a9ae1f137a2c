"""BOHB's sampler, as Ray Tune has it, for Optuna."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tune_tf.searchers.bohb_space import BohbSpace
from tune_tf.searchers.suggestions import Space

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace
    from ray.tune.search.bohb import TuneBOHB

_METRIC: Final = "value"
_ASKED: Final = "asked"


class BohbSampler(BaseSampler):
    """Samples from kernel densities at the largest budget that enough trials have reached.

    Wraps :class:`ray.tune.search.bohb.TuneBOHB` (Falkner et al. 2018, "BOHB: Robust and Efficient
    Hyperparameter Optimization at Scale"), without its need of one certain scheduler: every value
    in a trial's curve is an observation at that iteration as the budget. Needs the packages
    hpbandster and ConfigSpace.

    Everything it knows it takes from the study, so it goes on after a resume.

    Args:
        space: A :class:`tune_tf.SearchSpace`, conditions included, or a mapping of Optuna
            distributions.
        seed: Seed of the draws.
    """

    def __init__(
        self, space: Space | Mapping[str, BaseDistribution], seed: int | None = None
    ) -> None:
        self._space = BohbSpace(space)
        self._rng = np.random.default_rng(seed)
        self._random = RandomSampler(seed=seed)
        self._model: tuple[ConfigurationSpace, TuneBOHB] | None = None
        self._fed: set[tuple[int, int]] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the model, which is made anew from the study."""
        return {**self.__dict__, "_model": None, "_fed": set()}

    def reseed_rng(self) -> None:
        """Seed afresh."""
        self._rng = np.random.default_rng()
        self._random.reseed_rng()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return all parameters."""
        return self._space.distributions

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return the active parameters of the next trial."""
        if not self._space.distributions:
            return {}
        with self._own_randomness():
            if self._model is None:
                self._model = _model(self._space, study.direction)
            config_space, bohb = self._model
            self._feed(bohb, study.get_trials(deepcopy=False))
            config_space.seed(int(self._rng.integers(2**31)))
            configuration = bohb.suggest(_ASKED)
            bohb.on_trial_complete(_ASKED)
        return self._space.decoded(configuration)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value for a parameter that the space does not have, or has otherwise."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _feed(self, bohb: "TuneBOHB", trials: Sequence[FrozenTrial]) -> None:
        """Tell the model what it does not know yet."""
        longest = max((max(t.intermediate_values, default=1) for t in trials), default=1)
        for trial in trials:
            fresh = {
                step: value
                for step, value in _curve(trial, longest).items()
                if math.isfinite(value) and (trial.number, step) not in self._fed
            }
            if not fresh:
                continue
            self._fed.update((trial.number, step) for step in fresh)
            trial_id = str(trial.number)
            try:
                bohb.trial_to_params[trial_id] = self._space.encoded(trial.params)
            except ValueError:
                continue  # it was not drawn from this space
            for step, value in sorted(fresh.items()):
                info = {"budget": float(step)}
                bohb.on_trial_result(trial_id, {_METRIC: value, "hyperband_info": info})
            bohb.on_trial_complete(trial_id)

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Lend numpy's global generator, which hpbandster draws from, and quiet its warnings."""
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(int(self._rng.integers(2**32)))  # noqa: NPY002
        try:
            with warnings.catch_warnings():
                # hpbandster calls ConfigSpace by names that will go one day, and its kernels
                # divide by 0 where an option stands alone; it treats the result itself.
                warnings.simplefilter("ignore")
                yield
        finally:
            np.random.set_state(state)  # noqa: NPY002


def _curve(trial: FrozenTrial, longest: int) -> Mapping[int, float]:
    """Return a trial's observations; one that came without a curve was trained for longest."""
    if trial.state is TrialState.FAIL:
        return {}
    if trial.state is TrialState.COMPLETE and not trial.intermediate_values:
        return {longest: trial.values[0]}
    return trial.intermediate_values


def _model(space: BohbSpace, direction: StudyDirection) -> "tuple[ConfigurationSpace, TuneBOHB]":
    from ray.tune.search.bohb import TuneBOHB  # late: it imports an optional package

    mode = "max" if direction is StudyDirection.MAXIMIZE else "min"
    config_space = space.to_config_space()
    return config_space, TuneBOHB(config_space, metric=_METRIC, mode=mode)
