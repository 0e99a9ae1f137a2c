"""The forms in which a search space can be given to a searcher, as one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import BaseTrial

from tune_tf.errors import Fault, InvalidSettingsError

Suggest = Callable[[Any], dict[str, Any] | None]
"""Asks an Optuna trial for the active parameters, and returns ``path -> value``."""


@runtime_checkable
class Space(Protocol):
    """A search space that has a form for Optuna, such as ``tune_tf.SearchSpace``."""

    def to_optuna(self) -> Suggest:
        """Return the space as a callable."""
        ...

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """Return all parameters that are searched, whether active or not."""
        ...


@dataclass(frozen=True)
class Distributions:
    """Suggests a fixed set of parameters.

    Args:
        by_path: What each parameter is drawn from.
    """

    by_path: dict[str, BaseDistribution]

    def __call__(self, trial: BaseTrial) -> dict[str, Any]:
        """Return a value for each parameter."""
        return {path: self._suggest(trial, path) for path in self.by_path}

    def _suggest(self, trial: BaseTrial, path: str) -> Any:
        match self.by_path[path]:
            case FloatDistribution() as floats:
                return trial.suggest_float(
                    path, floats.low, floats.high, step=floats.step, log=floats.log
                )
            case IntDistribution() as ints:
                return trial.suggest_int(path, ints.low, ints.high, step=ints.step, log=ints.log)
            case CategoricalDistribution() as options:
                return trial.suggest_categorical(path, options.choices)
        raise TypeError(f"{path}: {self.by_path[path]!r} cannot be suggested")


def suggest_of(space: Space | Suggest | Mapping[str, BaseDistribution]) -> Suggest:
    """Return a space as a callable that asks an Optuna trial for its parameters.

    Raises:
        InvalidSettingsError: The space has none of the forms; all faults of a dict at once.
    """
    if isinstance(space, Space):
        return space.to_optuna()
    if callable(space):
        return space
    if not isinstance(space, Mapping):
        raise InvalidSettingsError(
            [
                (
                    "space must be a SearchSpace, a callable that takes an Optuna trial, or a dict "
                    f"of Optuna distributions, not {type(space).__name__}"
                )
            ]
        )
    faults = [
        Fault(path, f"must be an Optuna distribution, not {value!r}")
        for path, value in space.items()
        if not isinstance(value, FloatDistribution | IntDistribution | CategoricalDistribution)
    ]
    if faults:
        raise InvalidSettingsError(faults)
    return Distributions(dict(space))


def has_categoricals(space: Space | Suggest | Mapping[str, BaseDistribution]) -> bool:
    """Return whether a space has parameters without an order; True where it cannot be known."""
    if isinstance(space, Space):
        space = space.distributions()
    if not isinstance(space, Mapping):
        return True
    return any(isinstance(value, CategoricalDistribution) for value in space.values())
