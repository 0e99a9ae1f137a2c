"""Random configs that follow from the seed and the trial's number alone."""

import secrets
import zlib
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial


class NumberedRandomSampler(RandomSampler):
    """Draws as Optuna's sampler does, but each value by the seed, the number and the name.

    Optuna's draws one value after another from one sequence: who is killed between a draw and the
    next save goes on with other configs than an undisturbed sweep has. These are the same whatever
    was drawn before and however often, and those of a parameter stay when others are added. A value
    takes 0.1 ms.

    Args:
        seed: Of all draws; None for any.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self._seed = secrets.randbits(64) if seed is None else seed

    def reseed_rng(self) -> None:
        """Do nothing: who draws at the same time draws for other numbers."""

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
        drawn = RandomSampler(seed)
        return drawn.sample_independent(study, trial, param_name, param_distribution)
