"""Capabilities of samplers, and checks of a search space against them."""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler

from tune_tf.errors import ErrorDetail
from tune_tf.searchers.samplers.exhaustive import MOST_POINTS, num_values
from tune_tf.searchers.space_adapter import GivenSpace, Outline
from tune_tf.searchers.storage.visibility import UNFILTERED, Visibility
from tune_tf.space.paths import dotted


class ConditionSupport(enum.Enum):
    """How a sampler handles parameters that not every trial has."""

    NATIVE = "as they are"
    DENSE = "every parameter is suggested in every trial"
    NONE = "not at all"


@dataclass(frozen=True)
class SamplerRequest:
    """Search for which a sampler is created.

    Args:
        space: The space as given by the user.
        seed: Seed of the sampler; None for a random one.
        num_objectives: Number of optimised metrics.
        has_constraints: Whether trials will have constraints.
    """

    space: GivenSpace
    seed: int | None = None
    num_objectives: int = 1
    has_constraints: bool = False
    outline: Outline = field(init=False)

    def __post_init__(self) -> None:
        """Derive the outline of the space."""
        object.__setattr__(self, "outline", Outline.of(self.space))


@dataclass(frozen=True)
class SamplerKind:
    """Sampler of the catalogue with its capabilities.

    Args:
        optuna: Class of the sampler.
        make: Creates it.
        conditions: How it handles conditional parameters.
        choices: Whether it supports unordered parameters.
        continuous: Whether it supports ranges without a step.
        logs: Whether it supports logarithmic ranges.
        callables: Whether it supports a space that only a callable knows.
        multi_objective: Whether it supports several objectives.
        constraints: Whether it learns from constraints.
        reseeded: Whether a resumed sweep must reseed it so that it does not repeat its draws; not
            if they follow from the study.
        packages: Required packages, by the names of import and of pip.
        visibility: Which parts of trials it sees.
        multi_visibility: The same with several objectives.
    """

    optuna: type[BaseSampler]
    make: Callable[[SamplerRequest], BaseSampler]
    conditions: ConditionSupport = ConditionSupport.NATIVE
    choices: bool = True
    continuous: bool = True
    logs: bool = True
    callables: bool = True
    multi_objective: bool = True
    constraints: bool = False
    reseeded: bool = True
    packages: tuple[str, ...] = ()
    visibility: Visibility = UNFILTERED
    multi_visibility: Visibility = UNFILTERED

    def find_errors(
        self, name: str, asked: SamplerRequest, others: "dict[str, SamplerKind]"
    ) -> list[ErrorDetail]:
        """Return all reasons why the sampler does not support a search.

        Args:
            name: Name of the sampler.
            asked: The search.
            others: All samplers by name, to suggest alternatives.
        """
        errors = self._missing_packages(name)
        if asked.num_objectives > 1 and not self.multi_objective:
            able = _list_names(others, lambda kind: kind.multi_objective)
            text = (
                f"sampler {name!r} supports one objective, not {asked.num_objectives}: keep one, "
                f"or use {able}"
            )
            errors.append(ErrorDetail("", text))
        distributions = asked.outline.distributions
        if distributions is None:
            if not self.callables:
                able = _list_names(others, lambda kind: kind.callables)
                text = (
                    f"sampler {name!r} must know the space beforehand: pass a SearchSpace or a "
                    f"dict of distributions instead of a callable, or use {able}"
                )
                errors.append(ErrorDetail("", text))
            return errors
        for path, distribution in distributions.items():
            errors.extend(
                ErrorDetail(dotted(path), text)
                for text in self._param_errors(name, distribution, others)
            )
        if self.conditions is ConditionSupport.NONE:
            able = _list_names(others, lambda kind: kind.conditions is not ConditionSupport.NONE)
            errors.extend(
                ErrorDetail(
                    dotted(path),
                    f"has a `when`, which sampler {name!r} does not support: remove it, or use "
                    f"{able}",
                )
                for path in distributions
                if path in asked.outline.conditional
            )
        return errors or self._too_many(name, distributions.values())

    def _missing_packages(self, name: str) -> list[ErrorDetail]:
        missing = [package for package in self.packages if find_spec(package) is None]
        if not missing:
            return []
        text = (
            f"sampler {name!r} needs {' and '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install {' '.join(missing)}"
        )
        return [ErrorDetail("", text)]

    def _param_errors(
        self, name: str, distribution: BaseDistribution, others: "dict[str, SamplerKind]"
    ) -> list[str]:
        """Return why the sampler does not support a parameter."""
        texts = []
        if isinstance(distribution, CategoricalDistribution) and not self.choices:
            able = _list_names(others, lambda kind: kind.choices)
            texts.append(
                f"is a choice, and sampler {name!r} supports numbers only: make it a range, or use "
                f"{able}"
            )
        if isinstance(distribution, CategoricalDistribution):
            return texts
        if _is_log(distribution) and not self.logs:
            able = _list_names(others, lambda kind: kind.logs)
            texts.append(
                f"is a logarithmic range, which sampler {name!r} does not support: make it a "
                f"choice among values, or use {able}"
            )
        elif _is_continuous(distribution) and not self.continuous:
            able = _list_names(others, lambda kind: kind.continuous)
            texts.append(
                f"has infinitely many values, and sampler {name!r} tries every one: set a step, "
                f"make it a choice, or use {able}"
            )
        return texts

    def _too_many(self, name: str, distributions: Iterable[BaseDistribution]) -> list[ErrorDetail]:
        if self.conditions is not ConditionSupport.NONE:
            return []
        points = 1
        for distribution in distributions:
            points *= num_values(distribution)
        if points <= MOST_POINTS:
            return []
        text = (
            f"sampler {name!r} would try {points} configs, more than {MOST_POINTS}: use coarser "
            "steps, or 'random' or 'tpe'"
        )
        return [ErrorDetail("", text)]


def _is_log(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log


def _is_continuous(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, FloatDistribution) and distribution.step is None


def _list_names(kinds: dict[str, SamplerKind], able: Callable[[SamplerKind], bool]) -> str:
    """Return the names of samplers with a capability, for an error text."""
    names = [repr(name) for name, kind in kinds.items() if able(kind)]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
