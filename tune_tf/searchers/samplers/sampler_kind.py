"""What a sampler can take, and what is wrong with a space for it."""

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
from tune_tf.searchers.storage.visibility import AS_TOLD, Visibility
from tune_tf.space.paths import dotted


class ConditionSupport(enum.Enum):
    """How a sampler copes with parameters that not every trial has."""

    NATIVE = "as they are"
    DENSE = "every parameter is suggested in every trial"
    NONE = "not at all"


@dataclass(frozen=True)
class Asked:
    """What a sampler is made for.

    Args:
        space: The space as it was given.
        seed: Seed of the draws; None for any.
        num_objectives: How many metrics are optimised.
        has_constraints: Whether trials will have constraints.
    """

    space: GivenSpace
    seed: int | None = None
    num_objectives: int = 1
    has_constraints: bool = False
    outline: Outline = field(init=False)

    def __post_init__(self) -> None:
        """Look at the space once."""
        object.__setattr__(self, "outline", Outline.of(self.space))


@dataclass(frozen=True)
class SamplerKind:
    """One sampler of the catalogue.

    Args:
        optuna: Class of what is made.
        make: Makes it.
        conditions: How it copes with conditional parameters.
        choices: Whether it takes parameters without an order.
        endless: Whether it takes ranges with endlessly many values.
        logs: Whether it takes logarithmic ranges.
        callables: Whether it takes a space that only a callable knows.
        several: Whether it takes several objectives.
        constraints: Whether it learns from constraints.
        renewed: Whether a sweep that is taken up again needs it seeded anew, so that it does not
            repeat its draws; not if all that it draws follows from the study.
        packages: What it needs besides Optuna, by the names of import and of pip.
        rule: What it is shown of trials.
        rule_of_several: What it is shown where there are several objectives.
    """

    optuna: type[BaseSampler]
    make: Callable[[Asked], BaseSampler]
    conditions: ConditionSupport = ConditionSupport.NATIVE
    choices: bool = True
    endless: bool = True
    logs: bool = True
    callables: bool = True
    several: bool = True
    constraints: bool = False
    renewed: bool = True
    packages: tuple[str, ...] = ()
    rule: Visibility = AS_TOLD
    rule_of_several: Visibility = AS_TOLD

    def faults(
        self, name: str, asked: Asked, others: "dict[str, SamplerKind]"
    ) -> list[ErrorDetail]:
        """Return all that keeps this sampler from what it is asked for.

        Args:
            name: Its name.
            asked: What it is to be made for.
            others: All samplers, by name, to say which could be taken instead.
        """
        faults = self._missing(name)
        if asked.num_objectives > 1 and not self.several:
            able = _named(others, lambda kind: kind.several)
            text = (
                f"sampler {name!r} takes one objective, not {asked.num_objectives}: keep one, or "
                f"use {able}"
            )
            faults.append(ErrorDetail("", text))
        distributions = asked.outline.distributions
        if distributions is None:
            if not self.callables:
                able = _named(others, lambda kind: kind.callables)
                text = (
                    f"sampler {name!r} must know the space beforehand, and a callable does not "
                    f"tell: give a SearchSpace or a dict of distributions, or use {able}"
                )
                faults.append(ErrorDetail("", text))
            return faults
        for path, distribution in distributions.items():
            faults.extend(
                ErrorDetail(dotted(path), text)
                for text in self._misfits(name, distribution, others)
            )
        if self.conditions is ConditionSupport.NONE:
            able = _named(others, lambda kind: kind.conditions is not ConditionSupport.NONE)
            faults.extend(
                ErrorDetail(
                    dotted(path),
                    f"has a `when`, which sampler {name!r} cannot take: leave it out, or use "
                    f"{able}",
                )
                for path in distributions
                if path in asked.outline.conditional
            )
        return faults or self._too_many(name, distributions.values())

    def _missing(self, name: str) -> list[ErrorDetail]:
        missing = [package for package in self.packages if find_spec(package) is None]
        if not missing:
            return []
        text = (
            f"sampler {name!r} needs {' and '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed: pip install {' '.join(missing)}"
        )
        return [ErrorDetail("", text)]

    def _misfits(
        self, name: str, distribution: BaseDistribution, others: "dict[str, SamplerKind]"
    ) -> list[str]:
        """Return why it cannot take a parameter."""
        texts = []
        if isinstance(distribution, CategoricalDistribution) and not self.choices:
            able = _named(others, lambda kind: kind.choices)
            texts.append(
                f"is a choice, and sampler {name!r} takes numbers only: make it a range, or use "
                f"{able}"
            )
        if isinstance(distribution, CategoricalDistribution):
            return texts
        if _is_log(distribution) and not self.logs:
            able = _named(others, lambda kind: kind.logs)
            texts.append(
                f"is a logarithmic range, which sampler {name!r} cannot take: make it a choice "
                f"among values, or use {able}"
            )
        elif _is_endless(distribution) and not self.endless:
            able = _named(others, lambda kind: kind.endless)
            texts.append(
                f"has endlessly many values, and sampler {name!r} tries each: give it a step, make "
                f"it a choice, or use {able}"
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
            f"sampler {name!r} would try {points} configs, more than {MOST_POINTS}: take coarser "
            "steps, or use 'random' or 'tpe'"
        )
        return [ErrorDetail("", text)]


def _is_log(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log


def _is_endless(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, FloatDistribution) and distribution.step is None


def _named(kinds: dict[str, SamplerKind], able: Callable[[SamplerKind], bool]) -> str:
    """Return the names of samplers that can do something, for an error text."""
    names = [repr(name) for name, kind in kinds.items() if able(kind)]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
