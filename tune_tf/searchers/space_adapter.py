"""Adapters that turn every accepted form of a search space into one callable."""

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

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import SearchSpace
from tune_tf.space.optuna_form import OptunaSpace

Suggest = Callable[[Any], dict[str, Any]]
"""Asks an Optuna trial for the active parameters, and returns ``path -> value``."""

DefineByRun = Callable[[Any], Mapping[str, Any] | None]
"""A user's function that asks an Optuna trial for parameters, and may return more values."""


@runtime_checkable
class Space(Protocol):
    """Search space with an Optuna form, such as ``tune_tf.SearchSpace``."""

    def to_optuna(self) -> Suggest:
        """Return the space as a callable."""
        ...

    def distributions(self) -> Mapping[str, BaseDistribution]:
        """Return the distributions of all searched parameters, active or not."""
        ...


GivenSpace = Space | DefineByRun | Mapping[str, BaseDistribution]
"""The forms in which a searcher takes a space."""


@dataclass(frozen=True)
class Distributions:
    """Search space of a fixed set of parameters.

    Args:
        by_path: Distribution of each parameter.
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


@dataclass(frozen=True)
class FunctionSpace:
    """Search space defined by a function, with the constants that it returns.

    Args:
        function: Takes an Optuna trial; returns None, or constants by path. A constant named like
            a parameter replaces it.
    """

    function: DefineByRun

    def __call__(self, trial: BaseTrial) -> dict[str, Any]:
        """Return a value for each parameter and constant.

        Raises:
            InvalidSettingsError: The function returned something else.
        """
        returned = self.function(trial)
        if returned is None:
            return dict(trial.params)
        if not isinstance(returned, Mapping):
            raise self._invalid(f"{returned!r}")
        if names := [name for name in returned if not isinstance(name, str)]:
            raise self._invalid(f"a dict with the key {names[0]!r}")
        return {**trial.params, **returned}

    def _invalid(self, returned: str) -> InvalidSettingsError:
        name = getattr(self.function, "__name__", repr(self.function))
        return InvalidSettingsError(
            [
                (
                    f"space: the function {name} returned {returned}: return None or a dict "
                    "of constants by name; suggested parameters are in the config anyway"
                )
            ]
        )


def suggest_of(space: GivenSpace, *, dense: bool = False) -> Suggest:
    """Return a space as a callable that asks an Optuna trial for its parameters.

    Args:
        space: The space as given by the user.
        dense: Whether to suggest inactive parameters of a :class:`tune_tf.SearchSpace` as well;
            they are left out of the config all the same.

    Raises:
        InvalidSettingsError: The space has none of the accepted forms; lists all errors of a dict.
    """
    if dense and isinstance(space, SearchSpace):
        return OptunaSpace(space, dense=True)
    if isinstance(space, Space):
        return space.to_optuna()
    if isinstance(space, OptunaSpace):
        return space
    if callable(space):
        return FunctionSpace(space)
    if not isinstance(space, Mapping):
        raise InvalidSettingsError(
            [
                (
                    "space must be a SearchSpace, a callable that takes an Optuna trial, or a dict "
                    f"of Optuna distributions, not {type(space).__name__}"
                )
            ]
        )
    errors = [
        ErrorDetail(path, f"must be an Optuna distribution, not {value!r}")
        for path, value in space.items()
        if not isinstance(value, FloatDistribution | IntDistribution | CategoricalDistribution)
    ]
    if errors:
        raise InvalidSettingsError(errors)
    return Distributions(dict(space))


@dataclass(frozen=True)
class Outline:
    """Properties of a space that are known before a trial is asked for.

    Args:
        distributions: Distribution of each parameter that has several values, by path; None for a
            callable.
        conditional: Paths of those parameters that not every config has.
    """

    distributions: Mapping[str, BaseDistribution] | None = None
    conditional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, space: GivenSpace) -> "Outline":
        """Derive the outline of a space."""
        if isinstance(space, Space):
            found = space.distributions()
        elif isinstance(space, Mapping):
            found = space
        else:
            return cls()
        searched = {path: each for path, each in found.items() if not each.single()}
        if not isinstance(space, SearchSpace):
            return cls(searched)
        return cls(searched, frozenset(p for p in searched if space.parameters[p].condition))

    @property
    def has_choices(self) -> bool:
        """Whether there are, or may be, unordered parameters."""
        if self.distributions is None:
            return True
        kinds = self.distributions.values()
        return any(isinstance(each, CategoricalDistribution) for each in kinds)
