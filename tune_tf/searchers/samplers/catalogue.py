"""Optuna samplers by name."""

import secrets
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    CmaEsSampler,
    GPSampler,
    GridSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, TrialState

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.searchers.samplers.exhaustive import ExhaustiveSampler, grid_points
from tune_tf.searchers.samplers.sampler_kind import ConditionSupport, SamplerKind, SamplerRequest
from tune_tf.searchers.space_adapter import GivenSpace
from tune_tf.searchers.storage.visibility import (
    UNFILTERED,
    FinalValues,
    HighestRung,
    RungValues,
    Unfiltered,
    Visibility,
)


class _SilentCmaEs(CmaEsSampler):
    """CMA-ES without a warning per trial that it ignores constraints."""

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Call Optuna's method without the warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            super().after_trial(study, trial, state, values)


class NumberedRandomSampler(RandomSampler):
    """Random sampler that derives each value from the seed, the trial's number and the name.

    Optuna's sampler draws from one sequence, so a process killed between a draw and the next save
    continues with other configs than an undisturbed one. These are the same whatever was drawn
    before, and those of a parameter do not change when others are added. A value takes 0.1 ms.

    Args:
        seed: Seed of all draws; None for a random one.
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
        drawn = RandomSampler(seed)
        return drawn.sample_independent(study, trial, param_name, param_distribution)


def _tpe(asked: SamplerRequest) -> BaseSampler:
    # Joint sampling, Optuna's default, searches much worse where there are categoricals: 0.7 times
    # the epochs to a good config without it, over five problems and 30 seeds.
    if asked.outline.has_choices or asked.num_objectives > 1:
        return TPESampler(seed=asked.seed, multivariate=False)
    # Without groups, joint sampling draws what only some trials have at random.
    return TPESampler(seed=asked.seed, group=bool(asked.outline.conditional))


def _cmaes(asked: SamplerRequest) -> BaseSampler:
    kind = _SilentCmaEs if asked.has_constraints else CmaEsSampler
    return kind(seed=asked.seed, warn_independent_sampling=False)


def _grid(asked: SamplerRequest) -> BaseSampler:
    points = grid_points(asked.outline.distributions or {})
    return ExhaustiveSampler(GridSampler(points, seed=asked.seed), points)


_KINDS: Final[dict[str, SamplerKind]] = {
    "tpe": SamplerKind(
        TPESampler, _tpe, constraints=True, visibility=RungValues(), multi_visibility=FinalValues()
    ),
    "tpe_rungs": SamplerKind(
        TPESampler, _tpe, constraints=True, multi_objective=False, visibility=HighestRung()
    ),
    "random": SamplerKind(
        RandomSampler, lambda asked: NumberedRandomSampler(asked.seed), reseeded=False
    ),
    "cmaes": SamplerKind(
        CmaEsSampler,
        _cmaes,
        conditions=ConditionSupport.DENSE,
        choices=False,
        multi_objective=False,
        packages=("cmaes",),
    ),
    "gp": SamplerKind(
        GPSampler,
        lambda asked: GPSampler(seed=asked.seed, warn_independent_sampling=False),
        conditions=ConditionSupport.DENSE,
        constraints=True,
        packages=("torch", "scipy", "greenlet"),
    ),
    "nsga2": SamplerKind(
        NSGAIISampler,
        lambda asked: NSGAIISampler(seed=asked.seed),
        conditions=ConditionSupport.DENSE,
        constraints=True,
    ),
    "nsga3": SamplerKind(
        NSGAIIISampler,
        lambda asked: NSGAIIISampler(seed=asked.seed),
        conditions=ConditionSupport.DENSE,
        constraints=True,
    ),
    "qmc": SamplerKind(
        QMCSampler,
        lambda asked: QMCSampler(seed=asked.seed, warn_independent_sampling=False),
        conditions=ConditionSupport.DENSE,
        packages=("scipy",),
    ),
    "grid": SamplerKind(
        ExhaustiveSampler,
        _grid,
        conditions=ConditionSupport.NONE,
        continuous=False,
        logs=False,
        callables=False,
        reseeded=False,
    ),
    "bruteforce": SamplerKind(
        ExhaustiveSampler,
        lambda asked: ExhaustiveSampler(BruteForceSampler(seed=asked.seed)),
        continuous=False,
    ),
}

SAMPLERS: Final = tuple(_KINDS)
"""Names of all samplers."""


def make_sampler(
    sampler: str | BaseSampler,
    seed: int | None,
    *,
    space: GivenSpace,
    num_objectives: int = 1,
    has_constraints: bool = False,
) -> BaseSampler:
    """Create a sampler by name, or return the given one.

    Args:
        sampler: One of :data:`SAMPLERS`, or an Optuna sampler, which is returned unchanged except
            that a grid or an exhaustive search is wrapped in an :class:`ExhaustiveSampler`.
        seed: Seed of a sampler given by name.
        space: The space as given to the searcher.
        num_objectives: Number of optimised metrics.
        has_constraints: Whether trials will have constraints.

    Raises:
        InvalidSettingsError: The name is unknown; a seed is given with a sampler object; the
            sampler does not support the space or the objectives; or a package is missing. Lists all
            errors.
    """
    if isinstance(sampler, BaseSampler):
        if seed is not None:
            raise InvalidSettingsError(
                [f"seed={seed} has no effect on a sampler object: pass the seed to its constructor"]
            )
        if isinstance(sampler, GridSampler | BruteForceSampler):
            return ExhaustiveSampler(sampler)
        return sampler
    if sampler not in _KINDS:
        known = sorted(_KINDS)
        raise InvalidSettingsError(
            [
                (
                    f"unknown sampler {sampler!r}: it must be {one_of(known)} or an Optuna sampler"
                    f"{did_you_mean(sampler, known)}"
                )
            ]
        )
    asked = SamplerRequest(space, seed, num_objectives, has_constraints)
    kind = _KINDS[sampler]
    if errors := kind.find_errors(sampler, asked, _KINDS):
        raise InvalidSettingsError(errors)
    with warnings.catch_warnings():
        # The sampler was chosen by name, so the warning is of no use.
        warnings.simplefilter("ignore", ExperimentalWarning)
        return kind.make(asked)


def reseed_sampler(
    current: BaseSampler,
    sampler: str | BaseSampler,
    seed: int | None,
    num_trials: int,
    *,
    space: GivenSpace,
    num_objectives: int = 1,
    has_constraints: bool = False,
) -> BaseSampler:
    """Return a sampler that does not repeat the draws of ``current``.

    With a name and a seed, the new seed follows from them and the number of trials, so that a sweep
    resumed twice from the same point proposes the same configs. Otherwise ``current`` is reseeded.
    A grid stays unchanged, since the order of its points follows from the seed, and so do random
    configs, which follow from the seed and their number.
    """
    if isinstance(sampler, str) and not _KINDS[sampler].reseeded:
        return current
    if isinstance(sampler, BaseSampler) or seed is None:
        current.reseed_rng()
        return current
    derived = int(np.random.SeedSequence((seed, num_trials)).generate_state(1)[0])
    return make_sampler(
        sampler,
        derived,
        space=space,
        num_objectives=num_objectives,
        has_constraints=has_constraints,
    )


def needs_dense(sampler: str | BaseSampler) -> bool:
    """Return whether a sampler learns only from parameters that every trial has."""
    kind = _kind(sampler)
    return kind is not None and kind.conditions is ConditionSupport.DENSE


def uses_constraints(sampler: str | BaseSampler) -> bool:
    """Return whether a sampler learns from constraints; True for a foreign sampler."""
    kind = _kind(sampler)
    return kind is None or kind.constraints


def visibility_for(
    sampler: str | BaseSampler, num_objectives: int = 1, *, has_constraints: bool = False
) -> Visibility:
    """Return which parts of trials a sampler is to see.

    Args:
        sampler: Its name, or the sampler.
        num_objectives: Number of optimised metrics.
        has_constraints: Whether trials have constraints.
    """
    kind = _kind(sampler)
    if kind is None:
        return UNFILTERED
    if kind.optuna is GPSampler:
        return Unfiltered(constrained=has_constraints)
    return kind.visibility if num_objectives == 1 else kind.multi_visibility


def _kind(sampler: str | BaseSampler) -> SamplerKind | None:
    """Return the entry of a name or of a sampler's class; None for a foreign sampler."""
    if isinstance(sampler, str):
        return _KINDS[sampler]
    if isinstance(sampler, GridSampler | BruteForceSampler):
        return _KINDS["bruteforce"]
    return next((kind for kind in _KINDS.values() if isinstance(sampler, kind.optuna)), None)
