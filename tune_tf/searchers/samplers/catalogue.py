"""Optuna's samplers by name."""

import warnings
from collections.abc import Sequence
from typing import Final

import numpy as np
import optuna
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

from tune_tf.errors import InvalidSettingsError, near_ones, one_of
from tune_tf.searchers.samplers.exhaustive import ExhaustiveSampler, grid_points
from tune_tf.searchers.samplers.numbered_random import NumberedRandomSampler
from tune_tf.searchers.samplers.sampler_kind import Asked, ConditionSupport, SamplerKind
from tune_tf.searchers.space_adapter import GivenSpace
from tune_tf.searchers.storage.visibility import (
    AS_TOLD,
    FinalValues,
    HighestRung,
    RungValues,
    Unfiltered,
    Visibility,
)


class _SilentCmaEs(CmaEsSampler):
    """Does not warn at each end of a trial that constraints are of no use to it."""

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Pass on."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            super().after_trial(study, trial, state, values)


def _tpe(asked: Asked) -> BaseSampler:
    # Joint sampling, Optuna's default, searches much worse where there are categoricals: 0.7 times
    # the epochs to a good config without it, over five problems and 30 seeds.
    if asked.outline.has_choices or asked.num_objectives > 1:
        return TPESampler(seed=asked.seed, multivariate=False)
    # Without groups, joint sampling draws what only some trials have at random.
    return TPESampler(seed=asked.seed, group=bool(asked.outline.conditional))


def _cmaes(asked: Asked) -> BaseSampler:
    kind = _SilentCmaEs if asked.has_constraints else CmaEsSampler
    return kind(seed=asked.seed, warn_independent_sampling=False)


def _grid(asked: Asked) -> BaseSampler:
    points = grid_points(asked.outline.distributions or {})
    return ExhaustiveSampler(GridSampler(points, seed=asked.seed), points)


_KINDS: Final[dict[str, SamplerKind]] = {
    "tpe": SamplerKind(
        TPESampler, _tpe, constraints=True, rule=RungValues(), rule_of_several=FinalValues()
    ),
    "tpe_rungs": SamplerKind(TPESampler, _tpe, constraints=True, several=False, rule=HighestRung()),
    "random": SamplerKind(
        RandomSampler, lambda asked: NumberedRandomSampler(asked.seed), renewed=False
    ),
    "cmaes": SamplerKind(
        CmaEsSampler,
        _cmaes,
        conditions=ConditionSupport.DENSE,
        choices=False,
        several=False,
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
        endless=False,
        logs=False,
        callables=False,
        renewed=False,
    ),
    "bruteforce": SamplerKind(
        ExhaustiveSampler,
        lambda asked: ExhaustiveSampler(BruteForceSampler(seed=asked.seed)),
        endless=False,
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
    """Return the sampler of a name, or the one given.

    Args:
        sampler: One of :data:`SAMPLERS`, or a sampler of Optuna's, which is returned as it is but
            for a grid or an exhaustive search: those come as a :class:`ExhaustiveSampler`.
        seed: Seed of a sampler given by name.
        space: The space as it was given to the searcher.
        num_objectives: How many metrics are optimised.
        has_constraints: Whether trials will have constraints.

    Raises:
        InvalidSettingsError: The name is not known; a seed is given beside a sampler that is made
            already; the sampler cannot take the space or the objectives; or it needs a package
            that is not installed. With all faults at once.
    """
    if isinstance(sampler, BaseSampler):
        if seed is not None:
            raise InvalidSettingsError(
                [f"seed={seed} has no effect on a sampler that is made: give the seed to it"]
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
                    f"{near_ones(sampler, known)}"
                )
            ]
        )
    asked = Asked(space, seed, num_objectives, has_constraints)
    kind = _KINDS[sampler]
    if faults := kind.faults(sampler, asked, _KINDS):
        raise InvalidSettingsError(faults)
    with warnings.catch_warnings():
        # That a sampler is new in Optuna is no news to who chose it by name.
        warnings.simplefilter("ignore", ExperimentalWarning)
        return kind.make(asked)


def renewed(
    current: BaseSampler,
    sampler: str | BaseSampler,
    seed: int | None,
    num_trials: int,
    *,
    space: GivenSpace,
    num_objectives: int = 1,
    has_constraints: bool = False,
) -> BaseSampler:
    """Return a sampler that does not draw what ``current`` may have drawn before.

    With a name and a seed it follows from them and the number of trials, so that a sweep that is
    resumed twice from the same point proposes the same. Otherwise ``current`` is seeded afresh. A
    grid stays as it is, since the order of its points follows from the seed, and so do random
    configs, which follow from the seed and their number.
    """
    if isinstance(sampler, str) and not _KINDS[sampler].renewed:
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
    """Return whether a sampler learns from constraints; True of one that is not Optuna's."""
    kind = _kind(sampler)
    return kind is None or kind.constraints


def shown_rule(
    sampler: str | BaseSampler, num_objectives: int = 1, *, has_constraints: bool = False
) -> Visibility:
    """Return what a sampler is to be shown of trials.

    Args:
        sampler: Its name, or the sampler.
        num_objectives: How many metrics are optimised.
        has_constraints: Whether trials have constraints.
    """
    kind = _kind(sampler)
    if kind is None:
        return AS_TOLD
    if kind.optuna is GPSampler:
        return Unfiltered(constrained=has_constraints)
    return kind.rule if num_objectives == 1 else kind.rule_of_several


def _kind(sampler: str | BaseSampler) -> SamplerKind | None:
    """Return the entry of a name or of a sampler's class; None for one of the user's own."""
    if isinstance(sampler, str):
        return _KINDS[sampler]
    if isinstance(sampler, GridSampler | BruteForceSampler):
        return _KINDS["bruteforce"]
    return next((kind for kind in _KINDS.values() if isinstance(sampler, kind.optuna)), None)
