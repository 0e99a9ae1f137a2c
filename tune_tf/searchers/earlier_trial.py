"""Conversion of configs evaluated elsewhere to Optuna trials."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    SpaceLike,
    distributions_of,
    point_params,
    suggest_of,
)
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.space import Choice, Constant, SearchSpace
from tune_tf.space.frozen import hashable
from tune_tf.space.optuna_form import stored_value, to_distribution
from tune_tf.space.paths import dotted

EVALUATED: Final = "evaluated point"
"""Origin of a trial whose value a user gave."""


@dataclass(frozen=True)
class EarlierTrial:
    """Trial of an earlier sweep.

    Args:
        key: Its identifier in the source.
        state: Its Optuna state.
        params: Value by path: as Optuna stores it or, in text, as MLflow does.
        text: Whether the parameters are texts.
        values: The objectives' values; None for a trial that was stopped early.
        curve: The leading objective's values by iteration.
        violations: By how much each constraint is violated, by its text; None if unknown.
        constants: Values by path that are not Optuna parameters, as far as they are known.
    """

    key: str
    state: TrialState
    params: Mapping[str, Any]
    text: bool
    values: tuple[float, ...] | None
    curve: Mapping[int, float]
    violations: Mapping[str, float] | None
    constants: Mapping[str, Any] = field(default_factory=dict)


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
        params, errors = point_params(space, self.config)
        if errors:
            raise InvalidSettingsError(errors)
        outcome, values = self._outcome(criteria)
        earlier = EarlierTrial(
            key="",
            state=TrialState[outcome.optuna],
            params=params,
            text=False,
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
    params, distributions = _fit_params(_convert_params(earlier, space), space)
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


def _convert_params(earlier: EarlierTrial, space: SpaceLike) -> dict[str, Any]:
    """Return an earlier trial's values by path, as Optuna stores them in this space."""
    params = {**earlier.constants, **earlier.params}
    if isinstance(space, SearchSpace):
        for path in space.parameters.keys() & params.keys():
            parameter = space.parameters[path]
            if path in earlier.constants:
                params[path] = stored_value(params[path], parameter)
            elif earlier.text and isinstance(parameter, Choice):
                options = (each for each in parameter.options if str(each) == params[path])
                params[path] = stored_value(next(options, params[path]), parameter)
    if not earlier.text:
        return params
    distributions = distributions_of(space)
    if distributions is None:
        raise OutsideSpaceError(
            "MLflow's parameters cannot be converted for a space that is a callable"
        )
    return {path: _parse_text(text, distributions.get(path)) for path, text in params.items()}


def _parse_text(text: Any, distribution: BaseDistribution | None) -> Any:
    """Return the value that a text represents; the text itself if there is none."""
    try:
        match distribution:
            case FloatDistribution():
                return float(text)
            case IntDistribution():
                return int(float(text)) if float(text).is_integer() else float(text)
            case CategoricalDistribution(choices=choices):
                return next((each for each in choices if str(each) == str(text)), text)
    except ValueError:
        return text
    return text


def _fit_params(
    params: Mapping[str, Any], space: SpaceLike
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return the active parameters of a space that contains them, with their distributions."""
    fixed = FixedTrial(dict(params))
    try:
        with warnings.catch_warnings(action="error"):  # Optuna warns of what is out of range
            values = suggest_of(space)(fixed)
    except (ValueError, UserWarning) as error:
        raise OutsideSpaceError(_describe_mismatch(params, fixed, space)) from error
    for path, value in params.items():
        if path in fixed.params:
            continue
        if callable(space) and path in values and _is_equal(value, values[path]):
            continue
        parameter = space.parameters.get(path) if isinstance(space, SearchSpace) else None
        if not isinstance(parameter, Constant):
            what = "is inactive here" if parameter is not None else "is not a parameter here"
            raise OutsideSpaceError(f"their {dotted(path)} {what}")
        if path in values and not _is_equal(value, parameter.value):
            raise OutsideSpaceError(f"their {dotted(path)} is not {parameter.value!r}")
    return dict(fixed.params), dict(fixed.distributions)


def _describe_mismatch(params: Mapping[str, Any], fixed: FixedTrial, space: SpaceLike) -> str:
    """Return the first parameter that the space did not accept, as a reason."""
    if isinstance(space, SearchSpace):
        for path, parameter in space.parameters.items():
            if path in fixed.params or isinstance(parameter, Constant):
                continue
            if path in params:
                return f"their {dotted(path)} is out of range here"
            if parameter.condition.holds(fixed.params):
                return f"they lack {dotted(path)}"
    return "their parameters are out of range here"


def _is_equal(value: Any, constant: Any) -> bool:
    return hashable(value) == hashable(constant) or str(value) == str(constant)
