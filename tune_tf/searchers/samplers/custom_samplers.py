"""Random, proposed and exhaustive samplers for trials that are asked for one by one."""

import secrets
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BruteForceSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from tune_tf.space import SearchSpace
from tune_tf.space.optuna_form import stored_value
from tune_tf.tune_internals import controller


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


class ExhaustiveSampler(BruteForceSampler):
    """Optuna's sampler that tries each config of a finite space once, without its loop.

    Optuna's stops the loop of ``study.optimize`` when it is exhausted, and raises without one. Here
    the caller asks :meth:`exhausted` first.
    """

    def exhausted(self, study: optuna.Study) -> bool:
        """Return whether every config has been assigned.

        At the end of a trial Optuna's sampler stops the loop if nothing is left, counting running
        trials as done. Without a loop, stopping raises RuntimeError, which is the answer.
        """
        trials = study.get_trials(deepcopy=False)
        asked = [each for each in trials if each.params and each.state is not TrialState.WAITING]
        if not asked:
            return False
        try:
            super().after_trial(study, asked[-1], TrialState.PRUNED, None)
        except RuntimeError:
            return True
        return False

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Do nothing: Optuna's only stops a loop here, and there is none."""
