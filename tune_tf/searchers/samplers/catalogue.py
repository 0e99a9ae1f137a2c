"""Optuna samplers by name, with what they support."""

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from optuna import samplers
from optuna.distributions import BaseDistribution, CategoricalDistribution
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

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean, one_of
from tune_tf.extras import missing_extra
from tune_tf.searchers.samplers.custom_samplers import (
    MAX_POINTS,
    ExhaustiveSampler,
    NumberedRandomSampler,
    ProposalSampler,
    grid_points,
    is_continuous,
    num_values,
)
from tune_tf.searchers.space_adapter import Outline, SpaceLike
from tune_tf.space import SearchSpace
from tune_tf.space.paths import dotted


@dataclass(frozen=True)
class SamplerRequest:
    """Search for which a sampler is created; without a seed it is random."""

    space: SpaceLike
    outline: Outline
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
        grid: Whether it needs a list of values of each parameter beforehand, which excludes
            conditions, logarithmic ranges and spaces that only a callable knows.
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
    grid: bool = False
    multi_objective: bool = True
    constraints: bool = False
    reseeded: bool = True
    extra: str | None = None


def _tpe(request: SamplerRequest) -> BaseSampler:
    # Joint sampling, Optuna's default, searches much worse where there are categoricals: 0.7 times
    # the epochs to a good config without it, over five problems and 30 seeds.
    if request.outline.has_choices or request.num_objectives > 1:
        return TPESampler(**{"seed": request.seed, "multivariate": False, **request.arguments})
    # Without groups, joint sampling draws what only some trials have at random.
    group = bool(request.outline.conditional)
    return TPESampler(**{"seed": request.seed, "group": group, **request.arguments})


def _grid(request: SamplerRequest) -> BaseSampler:
    points = grid_points(request.outline.distributions or {})
    return ExhaustiveSampler(GridSampler(points, seed=request.seed), points)


def _bruteforce(request: SamplerRequest) -> BaseSampler:
    return ExhaustiveSampler(BruteForceSampler(seed=request.seed, **request.arguments))


def _proposals(request: SamplerRequest) -> BaseSampler:
    if not isinstance(request.space, SearchSpace):
        raise InvalidSettingsError(
            "sampler 'freeze_thaw' needs a SearchSpace, which the scheduler of that name models"
        )
    return ProposalSampler(request.space, request.seed)


_QUIET: Final = {"warn_independent_sampling": False}

SAMPLER_KINDS: Final[dict[str, SamplerKind]] = {
    "tpe": SamplerKind(TPESampler, _tpe, constraints=True),
    "random": SamplerKind(
        RandomSampler, lambda request: NumberedRandomSampler(request.seed), reseeded=False
    ),
    "freeze_thaw": SamplerKind(ProposalSampler, _proposals, multi_objective=False, reseeded=False),
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
    "grid": SamplerKind(GridSampler, _grid, continuous=False, grid=True, reseeded=False),
}
"""Samplers with a name of their own."""

_BY_CLASS: Final[dict[str, SamplerKind]] = {
    "BruteForceSampler": SamplerKind(BruteForceSampler, _bruteforce, continuous=False),
    "QMCSampler": SamplerKind(QMCSampler, options=_QUIET, dense=True),
}
"""Those of Optuna's that are known by the name of their class, with what they support."""

_GIVEN: Final = ("seed", "space", "search_space", "constraints_func")
"""Arguments that follow from the search."""


def optuna_samplers() -> list[str]:
    """Return the class names of Optuna's samplers that need no objects as arguments."""
    return [
        name
        for name, kind in inspect.getmembers(samplers, inspect.isclass)
        if issubclass(kind, BaseSampler)
        and not inspect.isabstract(kind)
        and kind not in (GridSampler, samplers.PartialFixedSampler)
    ]


def make_sampler(
    sampler: str | BaseSampler,
    seed: int | None,
    *,
    space: SpaceLike,
    num_objectives: int = 1,
    arguments: Mapping[str, Any] | None = None,
) -> BaseSampler:
    """Create a sampler by name, or return the given one.

    Args:
        sampler: One of :data:`SAMPLER_KINDS`, the name of a class of Optuna, or an Optuna sampler,
            which is returned unchanged except that a grid or an exhaustive search is wrapped in an
            :class:`ExhaustiveSampler`.
        seed: Seed of a sampler given by name.
        space: The space as given to the searcher.
        num_objectives: Number of optimized metrics.
        arguments: Further arguments of Optuna's class, of a sampler given by name.

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
            return ExhaustiveSampler(sampler)
        return sampler
    names = [*SAMPLER_KINDS, *optuna_samplers()]
    if sampler not in names:
        raise InvalidSettingsError(
            f"unknown sampler {sampler!r}: it must be {one_of(names)} or an Optuna sampler"
            f"{did_you_mean(sampler, names)}"
        )
    request = SamplerRequest(space, Outline.of(space), seed, num_objectives, arguments or {})
    if errors := _unsupported(sampler, request):
        raise InvalidSettingsError(errors)
    kind = _kind(sampler) or SamplerKind(getattr(samplers, sampler))
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


def reseed_sampler(
    current: BaseSampler,
    sampler: str | BaseSampler,
    seed: int | None,
    num_trials: int,
    **search: Any,
) -> BaseSampler:
    """Return a sampler that does not repeat the draws of ``current``.

    With a name and a seed, the new seed follows from them and the number of trials, so that a sweep
    resumed twice from the same point proposes the same configs. Otherwise ``current`` is reseeded.
    A grid stays unchanged, since the order of its points follows from the seed, and so do random
    configs, which follow from the seed and their number.

    Args:
        current: The sampler used until now.
        sampler: The sampler as given by the user.
        seed: Seed of a sampler given by name.
        num_trials: Number of trials in the study.
        search: The other arguments of :func:`make_sampler`.
    """
    if isinstance(sampler, str) and (kind := _kind(sampler)) and not kind.reseeded:
        return current
    if isinstance(sampler, BaseSampler) or seed is None:
        current.reseed_rng()
        return current
    derived = int(np.random.SeedSequence((seed, num_trials)).generate_state(1)[0])
    return make_sampler(sampler, derived, **search)


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
    kinds = SAMPLER_KINDS | _BY_CLASS
    if isinstance(sampler, str) and sampler in kinds:
        return kinds[sampler]
    if isinstance(sampler, GridSampler):
        return kinds["BruteForceSampler"]
    made = getattr(samplers, sampler) if isinstance(sampler, str) else type(sampler)
    kind = next((kind for kind in kinds.values() if issubclass(made, kind.optuna)), None)
    return replace(kind, make=None, reseeded=True) if kind else None


def _unsupported(name: str, request: SamplerRequest) -> list[ErrorDetail]:
    """Return all reasons why a sampler does not support a search."""
    kind = _kind(name) or SamplerKind(getattr(samplers, name))
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
            f"use {_others(multi_objective=True)}"
        )
    distributions = request.outline.distributions
    if distributions is None and kind.grid:
        errors.append(
            f"sampler {name!r} must know the space beforehand: pass a SearchSpace or a dict of "
            f"distributions instead of a callable, or use {_others(grid=False)}"
        )
    details = [ErrorDetail("", text) for text in errors]
    for path, distribution in (distributions or {}).items():
        if text := _unsupported_parameter(name, kind, distribution):
            details.append(ErrorDetail(dotted(path), text))
    if kind.grid:
        text = f"has a `when`, which sampler {name!r} does not support: remove it, or use "
        details += [
            ErrorDetail(dotted(path), text + _others(grid=False))
            for path in distributions or ()
            if path in request.outline.conditional
        ]
        num_points = 0 if details else math.prod(map(num_values, (distributions or {}).values()))
        if num_points > MAX_POINTS:
            text = (
                f"sampler {name!r} would try {num_points} configs, more than {MAX_POINTS}: use "
                "coarser steps, or 'random' or 'tpe'"
            )
            details.append(ErrorDetail("", text))
    return details


def _unsupported_parameter(
    name: str, kind: SamplerKind, distribution: BaseDistribution
) -> str | None:
    if isinstance(distribution, CategoricalDistribution):
        if kind.choices:
            return None
        return (
            f"is a choice, and sampler {name!r} supports numbers only: make it a range, or use "
            f"{_others(choices=True)}"
        )
    if kind.grid and getattr(distribution, "log", False):
        return (
            f"is a logarithmic range, which sampler {name!r} does not support: make it a choice "
            f"among values, or use {_others(grid=False)}"
        )
    if is_continuous(distribution) and not kind.continuous:
        return (
            f"has infinitely many values, and sampler {name!r} tries every one: set a step, make "
            f"it a choice, or use {_others(continuous=True)}"
        )
    return None


def _others(**capability: bool) -> str:
    """Return the names of samplers with a capability, for an error text."""
    [(attribute, value)] = capability.items()
    kinds = SAMPLER_KINDS | _BY_CLASS
    names = [repr(name) for name, kind in kinds.items() if getattr(kind, attribute) is value]
    return " or ".join([", ".join(names[:-1]), names[-1]])
