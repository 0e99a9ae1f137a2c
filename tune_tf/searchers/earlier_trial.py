"""Conversion of configs evaluated elsewhere to Optuna trials."""

import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FixedTrial, FrozenTrial, TrialState, create_trial

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.outcome import STOP_REASON, Outcome, is_finite
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.space_adapter import (
    DefineByRun,
    SpaceLike,
    distributions_of,
    point_params,
    suggest_of,
)
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.space import Choice, Constant, Float, Int, Parameter, SearchSpace, flatten
from tune_tf.space.hashable import hashable
from tune_tf.space.optuna_form import labels, stored_value, to_distribution

EVALUATED: Final = "evaluated point"
"""Origin of a trial whose value a user gave."""


@dataclass(frozen=True)
class EarlierTrial:
    """Trial of an earlier sweep.

    Args:
        key: Its identifier in the source.
        state: Its Optuna state.
        config: Value by path: an option itself, what Optuna stores for it, or its text.
        values: The objectives' values; None for a trial that was stopped early.
        curve: The leading objective's values by iteration.
        violations: By how much each constraint is violated, by its text; None if unknown.
    """

    key: str
    state: TrialState
    config: Mapping[str, Any]
    values: tuple[float, ...] | None
    curve: Mapping[int, float]
    violations: Mapping[str, float] | None


@dataclass(frozen=True)
class EvaluatedPoint:
    """Config with its value; see :meth:`.OptunaSearcher.add_evaluated_point`."""

    config: Mapping[str, Any]
    value: Any
    error: bool = False
    pruned: bool = False
    curve: tuple[float, ...] = ()

    def trial(
        self,
        space: SpaceLike,
        criteria: SearchCriteria,
        attributes: Mapping[str, Any],
        *,
        dense_seed: int | None = None,
    ) -> FrozenTrial:
        """Convert the point to a trial; see :func:`to_optuna_trial`.

        Raises:
            InvalidSettingsError: The space does not contain it, or a value is not a number.
        """
        if not isinstance(self.config, Mapping):
            raise InvalidSettingsError(f"an evaluated point must be a config, not {self.config!r}")
        _, errors = point_params(space, self.config)
        if errors:
            raise InvalidSettingsError(errors)
        outcome, values = self._outcome(criteria)
        earlier = EarlierTrial(
            key="",
            state=TrialState[outcome.optuna],
            config=flatten(self.config, space.parameters if isinstance(space, SearchSpace) else ()),
            values=values,
            curve=dict(enumerate(self.curve, start=1)),
            # An unknown constraint counts as violated, as it does for any trial.
            violations=criteria.violations(dict(zip(criteria.metrics, values or (), strict=False))),
        )
        attributes = {WARM_START: EVALUATED, STOP_REASON: outcome.value, **attributes}
        try:
            return to_optuna_trial(earlier, space, criteria, attributes, dense_seed=dense_seed)
        except OutsideSpaceError as error:
            raise InvalidSettingsError(
                f"the space does not contain the point {dict(self.config)!r}: {error}"
            ) from error

    def _outcome(self, criteria: SearchCriteria) -> tuple[Outcome, tuple[float, ...] | None]:
        """Return the trial's outcome, and its values unless it failed."""
        if self.error:
            return Outcome.ERROR, None
        several = isinstance(self.value, Sequence) and not isinstance(self.value, str)
        try:
            values = tuple(float(value) for value in (self.value if several else [self.value]))
        except (TypeError, ValueError):
            values = ()
        if len(values) != len(criteria.objectives):
            metrics = " and ".join(criteria.metrics)
            rule = f"value must be a number for {metrics}, not {self.value!r}; or set error=True"
            raise InvalidSettingsError(ErrorDetail("add_evaluated_point", rule))
        if not all(map(is_finite, values)):
            return Outcome.DIVERGED, None
        return (Outcome.PRUNED if self.pruned else Outcome.COMPLETED), values


class OutsideSpaceError(ValueError):
    """Reason why a space does not contain an earlier trial."""


def to_optuna_trial(
    earlier: EarlierTrial,
    space: SpaceLike,
    criteria: SearchCriteria,
    attributes: Mapping[str, Any],
    *,
    dense_seed: int | None = None,
) -> FrozenTrial:
    """Convert an earlier trial to one of a study with another space.

    ``attributes`` become user attributes. For a sampler that needs values of inactive parameters,
    they are sampled with ``dense_seed``.

    Raises:
        OutsideSpaceError: The space does not contain it, or required metrics are missing.
    """
    curve = {step: value for step, value in earlier.curve.items() if is_finite(value)}
    if earlier.state is TrialState.COMPLETE and not earlier.values:
        raise OutsideSpaceError(f"they have no finite value of {criteria}")
    if earlier.state is TrialState.PRUNED and not curve and not earlier.values:
        raise OutsideSpaceError(f"they were stopped before a value of {criteria.leading.metric}")
    if criteria.constraints and earlier.violations is None:
        raise OutsideSpaceError("they do not report all constrained metrics")
    params, distributions = _params_here(earlier.config, space)
    values = earlier.values
    if not values and curve and len(criteria.objectives) == 1:
        values = (curve[max(curve)],)
    if earlier.state is TrialState.FAIL:
        values = None
    if dense_seed is not None and isinstance(space, SearchSpace):
        rng = np.random.default_rng(dense_seed)
        for path, parameter in space.parameters.items():
            if path not in params and not isinstance(parameter, Constant):
                params[path] = stored_value(parameter.draw(rng), parameter)
                distributions[path] = to_distribution(parameter)
    trial = create_trial(
        state=earlier.state,
        params=params,
        distributions=distributions,
        values=list(values) if values else None,
        intermediate_values=curve,
        user_attrs=dict(attributes),
    )
    for key, violation in (earlier.violations or {}).items():
        trial.set_constraint(key, violation)
    return trial


def _params_here(
    config: Mapping[str, Any], space: SpaceLike
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return a config's parameters as Optuna stores them in a space, with their distributions.

    Raises:
        OutsideSpaceError: The space does not contain it.
    """
    if isinstance(space, SearchSpace):
        known: Mapping[str, Any] = space.parameters
    elif callable(space):
        return _params_of_function(config, space)
    else:
        known = space
    here = {path: _value_here(value, known.get(path)) for path, value in config.items()}
    params, errors = point_params(space, here)
    if errors:
        rule, *_ = re.split(", not | but |; ", errors[0].what)  # alike for all values
        raise OutsideSpaceError(f"their {errors[0].where} {rule}")
    distributions = distributions_of(space) or {}
    return params, {path: distributions[path] for path in params}


def _params_of_function(
    config: Mapping[str, Any], space: DefineByRun
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    fixed = FixedTrial(dict(config))
    try:
        with warnings.catch_warnings(action="error"):  # Optuna warns of what is out of range
            values = suggest_of(space)(fixed)
    except (ValueError, TypeError, UserWarning) as error:
        raise OutsideSpaceError("their parameters are out of range here") from error
    for path in config.keys() - fixed.params.keys():
        if path not in values or not _is_equal(config[path], values[path]):
            raise OutsideSpaceError(f"their {path} is not a parameter here")
    return dict(fixed.params), dict(fixed.distributions)


def _value_here(value: Any, parameter: Parameter | BaseDistribution | None) -> Any:
    """Return the value of a parameter that a stored one or a text stands for, if there is any."""
    options: Sequence[Any] = ()
    match parameter:
        case Choice(options=options):
            pairs = zip(labels(options), options, strict=True)
            options = [option for label, option in pairs if _is_equal(value, label)] or options
        case CategoricalDistribution(choices=options):
            pass
        case Constant(value=constant):
            options = (constant,)
        case Float() | FloatDistribution() | Int() | IntDistribution() if isinstance(value, str):
            with suppress(ValueError):
                number = float(value)
                is_whole = isinstance(parameter, Int | IntDistribution) and number.is_integer()
                return int(number) if is_whole else number
    return next((option for option in options if _is_equal(value, option)), value)


def _is_equal(value: Any, other: Any) -> bool:
    return hashable(value) == hashable(other) or str(value) == str(other)
