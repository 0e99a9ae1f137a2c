"""Draws around a config that is taken already."""

import zlib
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

_STEPS_TO_RANDOM = 50


class Near(BaseSampler):
    """Draws what a trial has, but for a random value of a parameter or two.

    The draws follow from the trial, so that the seed of whoever drew that decides these too.

    Args:
        trial: Where to stay near.
    """

    def __init__(self, trial: FrozenTrial) -> None:
        self._params = dict(trial.params)
        told = repr((trial.number, sorted(trial.params.items(), key=repr)))
        seed = zlib.crc32(told.encode())
        self._rng = np.random.default_rng(seed)
        self._values = RandomSampler(seed)
        self._least = self._share = 1 / max(1, len(self._params))

    def step_back(self) -> None:
        """Change more parameters from now on; after 50 times, all of them."""
        self._share = min(1.0, self._share + (1 - self._least) / _STEPS_TO_RANDOM)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return nothing: parameters come one by one."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the trial's value, or now and then a random one."""
        if param_name in self._params and self._rng.random() >= self._share:
            return self._params[param_name]
        return self._values.sample_independent(study, trial, param_name, param_distribution)
