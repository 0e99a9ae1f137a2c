"""Optuna samplers by name, with what they support."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from optuna import samplers
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    CmaEsSampler,
    GPSampler,
    GridSampler,
    NSGAIIISampler,
    NSGAIISampler,
    PartialFixedSampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.extras import missing_extra
from tune_tf.searchers.samplers.custom_samplers import (
    ExhaustiveSampler,
    NumberedRandomSampler,
    ProposalSampler,
)
from tune_tf.space import SearchSpace
from tune_tf.space.paths import dotted


@dataclass(frozen=True)
class SamplerRequest:
    """Search for which a sampler is created; without a seed it is random."""

    space: SearchSpace
    seed: int | None
    num_objectives: int
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class SamplerKind:
    """Sampler of the catalogue with its capabilities.

    Args:
        optuna: Class of the sampler.
        make: Creates it, unless it is created from a seed and ``options``.
        dense: Whether it learns only from parameters that every trial has.
        choices: Whether it supports unordered parameters.
        continuous: Whether it supports ranges without a step.
        multi_objective: Whether it supports several objectives.
        constraints: Whether it learns from constraints.
        reseeded: Whether a resumed sweep must reseed it so that it does not repeat its draws; not
            if they follow from the study.
        extra: Extra of tune_tf that installs what it needs.
    """

    optuna: type[Any]
    make: Callable[[SamplerRequest], BaseSampler] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    dense: bool = False
    choices: bool = True
    continuous: bool = True
    multi_objective: bool = True
    constraints: bool = False
    reseeded: bool = True
    extra: str | None = None


def _tpe(request: SamplerRequest) -> BaseSampler:
    # Joint sampling, Optuna's default, searches much worse where there are categoricals: 0.7 times
    # the epochs to a good config without it, over five problems and 30 seeds.
    kinds = searched_distributions(request.space).values()
    has_choices = any(isinstance(each, CategoricalDistribution) for each in kinds)
    if has_choices or request.num_objectives > 1:
        return TPESampler(**{"seed": request.seed, "multivariate": False, **request.arguments})
    # Without groups, joint sampling draws what only some trials have at random.
    group = request.space.conditional
    return TPESampler(**{"seed": request.seed, "group": group, **request.arguments})


_QUIET: Final = {"warn_independent_sampling": False}

SAMPLER_KINDS: Final[dict[str, SamplerKind]] = {
    "tpe": SamplerKind(TPESampler, _tpe, constraints=True),
    "random": SamplerKind(
        RandomSampler, lambda request: NumberedRandomSampler(request.seed), reseeded=False
    ),
    "freeze_thaw": SamplerKind(
        ProposalSampler,
        lambda request: ProposalSampler(request.space, request.seed),
        multi_objective=False,
        reseeded=False,
    ),
    "cmaes": SamplerKind(
        CmaEsSampler,
        options=_QUIET,
        dense=True,
        choices=False,
        multi_objective=False,
        extra="cmaes",
    ),
    "gp": SamplerKind(
        GPSampler,
        options=_QUIET,
        dense=True,
        constraints=True,
        extra="gp",
    ),
    "nsga2": SamplerKind(NSGAIISampler, dense=True, constraints=True),
    "nsga3": SamplerKind(NSGAIIISampler, dense=True, constraints=True),
    "grid": SamplerKind(ExhaustiveSampler, continuous=False),
    "QMCSampler": SamplerKind(QMCSampler, options=_QUIET, dense=True),
}
"""What samplers support, by their own name or, of Optuna's others, by that of their class."""

_GIVEN: Final = ("seed", "space", "search_space", "constraints_func")
"""Arguments that follow from the search."""


def searched_distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Return the distribution of each parameter of a space that has several values, by path."""
    return {path: each for path, each in space.distributions().items() if not each.single()}


def is_continuous(distribution: BaseDistribution) -> bool:
    """Return whether a parameter has infinitely many values."""
    return isinstance(distribution, FloatDistribution) and distribution.step is None


def optuna_samplers() -> list[str]:
    """Return the class names of Optuna's samplers that need no objects as arguments."""
    return [
        name
        for name, kind in inspect.getmembers(samplers, inspect.isclass)
        if issubclass(kind, BaseSampler)
        and not inspect.isabstract(kind)
        and kind not in (BruteForceSampler, GridSampler, PartialFixedSampler)
    ]


def make_sampler(
    sampler: str | BaseSampler,
    seed: int | None,
    *,
    space: SearchSpace,
    num_objectives: int = 1,
    arguments: Mapping[str, Any] | None = None,
    num_trials: int = 0,
) -> BaseSampler:
    """Create a sampler by name, or return the given one.

    One that goes on with a study does not repeat its draws: the seed then follows from the given
    one and the number of trials, so a sweep that is resumed twice from the same point proposes the
    same configs. Random configs stay the same, since they follow from the seed and their number.

    Args:
        sampler: One of :data:`SAMPLER_KINDS`, the name of a class of Optuna, or an Optuna sampler.
        seed: Seed of a sampler given by name.
        space: The search space.
        num_objectives: Number of optimized metrics.
        arguments: Further arguments of Optuna's class, of a sampler given by name.
        num_trials: Number of trials in the study that it goes on with.

    Raises:
        InvalidSettingsError: There is no such sampler, or it does not support the search; lists all
            errors.
    """
    if isinstance(sampler, BaseSampler):
        if seed is not None or arguments:
            what = f"seed={seed}" if seed is not None else f"sampler_arguments={arguments}"
            raise InvalidSettingsError(
                f"{what} has no effect on a sampler object: pass it to its constructor"
            )
        if isinstance(sampler, GridSampler | BruteForceSampler):
            raise InvalidSettingsError(
                f"{type(sampler).__name__} needs the loop of study.optimize: use sampler='grid'"
            )
        if num_trials:
            sampler.reseed_rng()
        return sampler
    names = list(dict.fromkeys([*SAMPLER_KINDS, *optuna_samplers()]))
    if sampler not in names:
        raise InvalidSettingsError(
            f"unknown sampler {sampler!r}: it must be {one_of(names)} or an Optuna sampler"
            f"{did_you_mean(sampler, names)}"
        )
    kind = _kind(sampler) or SamplerKind(getattr(samplers, sampler))
    if num_trials and seed is not None and kind.reseeded:
        seed = int(np.random.SeedSequence((seed, num_trials)).generate_state(1)[0])
    request = SamplerRequest(space, seed, num_objectives, arguments or {})
    if errors := _unsupported(sampler, kind, request):
        raise InvalidSettingsError(errors)
    with warnings.catch_warnings():
        # The sampler was chosen by name, so the warning is of no use.
        warnings.simplefilter("ignore", ExperimentalWarning)
        try:
            if kind.make:
                return kind.make(request)
            return kind.optuna(**{"seed": seed, **kind.options, **request.arguments})
        except (TypeError, ValueError) as error:
            raise InvalidSettingsError(
                f"sampler {sampler!r} refuses its arguments: {error}"
            ) from error


def needs_dense(sampler: str | BaseSampler) -> bool:
    """Return whether a sampler learns only from parameters that every trial has."""
    kind = _kind(sampler)
    return kind is not None and kind.dense


def uses_constraints(sampler: str | BaseSampler) -> bool:
    """Return whether a sampler learns from constraints; True for a foreign sampler."""
    kind = _kind(sampler)
    return kind is None or kind.constraints


def _kind(sampler: str | BaseSampler) -> SamplerKind | None:
    """Return the entry of a name or of a sampler's class; None for one that is not known."""
    if isinstance(sampler, str) and sampler in SAMPLER_KINDS:
        return SAMPLER_KINDS[sampler]
    made = getattr(samplers, sampler) if isinstance(sampler, str) else type(sampler)
    kinds = SAMPLER_KINDS.values()
    kind = next((kind for kind in kinds if issubclass(made, kind.optuna)), None)
    return replace(kind, make=None, reseeded=True) if kind else None


def _unsupported(name: str, kind: SamplerKind, request: SamplerRequest) -> list[ErrorDetail]:
    """Return all reasons why a sampler does not support a search."""
    errors = []
    taken = [key for key in inspect.signature(kind.optuna).parameters if key not in _GIVEN]
    errors += [
        f"sampler {name!r} has no argument {key!r}{did_you_mean(key, taken)}; it takes "
        f"{', '.join(taken) or 'none'}"
        for key in request.arguments
        if key not in taken
    ]
    if kind.extra and (missing := missing_extra(kind.extra)):
        errors.append(f"sampler {name!r} needs {missing}")
    if request.num_objectives > 1 and not kind.multi_objective:
        errors.append(
            f"sampler {name!r} supports one objective, not {request.num_objectives}: keep one, or "
            f"use {_others('multi_objective')}"
        )
    details = [ErrorDetail("", text) for text in errors]
    for path, distribution in searched_distributions(request.space).items():
        if isinstance(distribution, CategoricalDistribution) and not kind.choices:
            text = (
                f"is a choice, and sampler {name!r} supports numbers only: make it a range, or use "
                f"{_others('choices')}"
            )
            details.append(ErrorDetail(dotted(path), text))
        if is_continuous(distribution) and not kind.continuous:
            text = (
                f"has infinitely many values, and sampler {name!r} tries every one: set a step, "
                f"make it a choice, or use {_others('continuous')}"
            )
            details.append(ErrorDetail(dotted(path), text))
    return details


def _others(capability: str) -> str:
    """Return the names of samplers with a capability, for an error text."""
    names = [repr(name) for name, kind in SAMPLER_KINDS.items() if getattr(kind, capability)]
    return " or ".join([", ".join(names[:-1]), names[-1]])
