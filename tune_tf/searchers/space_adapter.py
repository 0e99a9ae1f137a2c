"""Adapters of every accepted form of a search space: as a callable, and for configs of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import BaseTrial, TrialState, create_trial

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space import Constant, SearchSpace, flatten
from tune_tf.space.optuna_form import OptunaSpace, stored_value, suggest

Suggest = Callable[[Any], dict[str, Any]]
"""Asks an Optuna trial for the active parameters, and returns ``path -> value``."""

DefineByRun = Callable[[Any], Mapping[str, Any] | None]
"""A user's function that asks an Optuna trial for parameters, and may return more values."""


SpaceLike = SearchSpace | DefineByRun | Mapping[str, BaseDistribution]
"""The forms in which a searcher takes a space."""


def suggest_of(space: SpaceLike, *, dense: bool = False) -> Suggest:
    """Return a space as a callable that asks an Optuna trial for its parameters.

    Args:
        space: The space as given by the user.
        dense: Whether to suggest inactive parameters of a :class:`tune_tf.SearchSpace` as well;
            they are left out of the config all the same.

    Raises:
        InvalidSettingsError: The space has none of the accepted forms; lists all errors of a dict.
    """
    if isinstance(space, SearchSpace):
        return OptunaSpace(space, dense=dense)
    if isinstance(space, OptunaSpace):
        return space
    if callable(space):
        return partial(_suggest_by_function, space)
    if not isinstance(space, Mapping):
        raise InvalidSettingsError(
            "space must be a SearchSpace, a callable that takes an Optuna trial, or a dict "
            f"of Optuna distributions, not {type(space).__name__}"
        )
    errors = [
        ErrorDetail(path, f"must be an Optuna distribution, not {value!r}")
        for path, value in space.items()
        if not isinstance(value, FloatDistribution | IntDistribution | CategoricalDistribution)
    ]
    if errors:
        raise InvalidSettingsError(errors)
    return partial(_suggest_all, dict(space))


def _suggest_all(distributions: Mapping[str, BaseDistribution], trial: BaseTrial) -> dict[str, Any]:
    return {path: suggest(trial, path, each) for path, each in distributions.items()}


def _suggest_by_function(function: DefineByRun, trial: BaseTrial) -> dict[str, Any]:
    """Return the parameters that a function suggests; a constant of the same name replaces one.

    Raises:
        InvalidSettingsError: The function returned neither None nor constants.
    """
    constants = function(trial)
    if constants is None:
        return dict(trial.params)
    if isinstance(constants, Mapping):
        names = [name for name in constants if not isinstance(name, str)]
        if not names:
            return {**trial.params, **constants}
        returned = f"a dict with the key {names[0]!r}"
    else:
        returned = f"{constants!r}"
    raise InvalidSettingsError(
        f"space: the function {getattr(function, '__name__', repr(function))} returned {returned}: "
        "return None or a dict of constants by name; suggested parameters are in the config anyway"
    )


def distributions_of(space: SpaceLike) -> dict[str, BaseDistribution] | None:
    """Return the distributions of all searched parameters; None for a callable."""
    if isinstance(space, SearchSpace):
        return space.distributions()
    return dict(space) if isinstance(space, Mapping) else None


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
    def of(cls, space: SpaceLike) -> "Outline":
        """Derive the outline of a space."""
        distributions = distributions_of(space)
        if distributions is None:
            return cls()
        searched = {path: each for path, each in distributions.items() if not each.single()}
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


def point_params(
    space: SpaceLike, config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ErrorDetail]]:
    """Return Optuna's parameters of a nested config, and why the space does not contain it."""
    if isinstance(space, SearchSpace):
        return _params_in_space(space, config)
    flat = flatten(config)
    distributions = distributions_of(space)
    return flat, [] if distributions is None else _distribution_errors(distributions, flat)


def _params_in_space(
    space: SearchSpace, config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ErrorDetail]]:
    flat = flatten(config, space.parameters)
    active_values: dict[str, Any] = {}
    params: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        active = parameter.condition.holds(active_values)
        if active and isinstance(parameter, Constant) and path not in flat:
            flat[path] = parameter.value
        if active and path in flat:
            active_values[path] = flat[path]
            if not isinstance(parameter, Constant):
                params[path] = stored_value(flat[path], parameter)
    return params, space.validate(flat)


def _distribution_errors(
    distributions: Mapping[str, BaseDistribution], flat: Mapping[str, Any]
) -> list[ErrorDetail]:
    errors = [ErrorDetail(path, "is not a parameter") for path in flat if path not in distributions]
    for path, distribution in distributions.items():
        if path not in flat:
            errors.append(ErrorDetail(path, "is missing"))
            continue
        try:
            create_trial(
                state=TrialState.WAITING,
                params={path: flat[path]},
                distributions={path: distribution},
            )
        except (ValueError, TypeError):
            errors.append(ErrorDetail(path, f"must be of {distribution!r}, not {flat[path]!r}"))
    return errors
