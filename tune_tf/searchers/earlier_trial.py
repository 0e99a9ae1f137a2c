"""Conversion of configs from elsewhere to trials of an Optuna study."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState, create_trial

from tune_tf.errors import ErrorDetail
from tune_tf.outcome import is_finite
from tune_tf.record import recorded_form
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.trial_attrs import WARM_START, WARM_START_KEY
from tune_tf.space import Choice, Constant, Float, Int, Parameter, SearchSpace, flatten
from tune_tf.space.hashable import hashable
from tune_tf.space.optuna_form import labels, stored_value, to_distribution


@dataclass(frozen=True)
class EarlierTrial:
    """Trial of an earlier sweep, as plain data.

    Args:
        source: Where it comes from.
        key: Its identifier there.
        completed: Whether it ran to its end; else it was stopped early.
        config: Value by path: an option itself, what Optuna stores for it, or its text.
        values: The objectives' values; None for a trial that was stopped early.
        curve: The leading objective's values by iteration.
        violations: By how much each constraint is violated, by its text; None if unknown.
    """

    source: str
    key: str
    completed: bool
    config: Mapping[str, Any]
    values: Sequence[float] | None
    curve: Mapping[int, float]
    violations: Mapping[str, float] | None


class OutsideSpaceError(ValueError):
    """Reason why a space does not contain an earlier trial."""


def to_optuna_trial(
    earlier: EarlierTrial,
    space: SearchSpace,
    criteria: SearchCriteria,
    *,
    dense_seed: int | None = None,
) -> FrozenTrial:
    """Convert an earlier trial to one of a study with another space.

    For a sampler that needs values of inactive parameters, they are sampled with ``dense_seed``.

    Raises:
        OutsideSpaceError: The space does not contain it, or required metrics are missing.
    """
    curve = {int(step): value for step, value in earlier.curve.items() if is_finite(value)}
    if earlier.completed and not earlier.values:
        raise OutsideSpaceError(f"they have no finite value of {criteria}")
    if not earlier.completed and not curve and not earlier.values:
        raise OutsideSpaceError(f"they were stopped before a value of {criteria.leading.metric}")
    if criteria.constraints and earlier.violations is None:
        raise OutsideSpaceError("they do not report all constrained metrics")
    here = {path: value_here(it, space.parameters.get(path)) for path, it in earlier.config.items()}
    params, errors = point_params(space, here)
    if errors:
        rule, *_ = re.split(", not | but |; ", errors[0].what)  # alike for all values
        raise OutsideSpaceError(f"their {errors[0].where} {rule}")
    values = earlier.values
    if not values and curve and len(criteria.objectives) == 1:
        values = (curve[max(curve)],)
    if dense_seed is not None:
        params = dense_params(space, params, dense_seed)
    return create_trial(
        state=TrialState.COMPLETE if earlier.completed else TrialState.PRUNED,
        params=params,
        distributions={path: to_distribution(space.parameters[path]) for path in params},
        values=list(values) if values else None,
        intermediate_values=curve,
        user_attrs={WARM_START: earlier.source, WARM_START_KEY: earlier.key},
        constraints=dict(earlier.violations or {}),
    )


def point_params(
    space: SearchSpace, config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ErrorDetail]]:
    """Return Optuna's parameters of a config, and why the space does not contain it.

    Constants may be left out.
    """
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


def params_here(space: SearchSpace, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return Optuna's parameters of a nested config that may have passed through JSON.

    Empty if the space does not contain it.
    """
    flat = flatten(config, space.parameters)
    here = {path: value_here(it, space.parameters.get(path)) for path, it in flat.items()}
    params, errors = point_params(space, here)
    return {} if errors else params


def dense_params(space: SearchSpace, params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return parameters with random values for those that are missing, as inactive ones are."""
    rng = np.random.default_rng(seed)
    drawn = {
        path: stored_value(parameter.draw(rng), parameter)
        for path, parameter in space.parameters.items()
        if path not in params and not isinstance(parameter, Constant)
    }
    return drawn | dict(params)


def value_here(value: Any, parameter: Parameter | None) -> Any:
    """Return the value of a parameter that a stored one or a text stands for, if there is any."""
    match parameter:
        case Choice(options=options):
            named = (*zip(labels(options), options, strict=True), *((it, it) for it in options))
        case Constant(value=constant):
            named = ((constant, constant),)
        case Float() | Int() if isinstance(value, str):
            with suppress(ValueError):
                number = float(value)
                is_whole = isinstance(parameter, Int) and number.is_integer()
                return int(number) if is_whole else number
            return value
        case _:
            return value
    # As a record gives it back, then as a study does, then as MLflow's text: 2, "2" and True differ
    # in the first.
    recorded = repr(recorded_form(value))
    for _, option in named:
        if repr(recorded_form(option)) == recorded:
            return option
    known = hashable(value)
    for name, option in named:
        if hashable(name) == known:
            return option
    return next((option for name, option in named if str(name) == str(value)), value)
