"""Optuna trials of a study for configs that were evaluated elsewhere."""

import warnings
from collections.abc import Mapping, Sequence
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
from tune_tf.searchers.initial_points import label_of, point_params
from tune_tf.searchers.objectives import SearchObjectives
from tune_tf.searchers.space_adapter import GivenSpace, Space, suggest_of
from tune_tf.searchers.trial_attrs import WARM_START
from tune_tf.searchers.warm_start.earlier_trials import EarlierTrial
from tune_tf.space import Choice, Constant, SearchSpace
from tune_tf.space.frozen import hashable
from tune_tf.space.optuna_form import distribution
from tune_tf.space.paths import dotted

EVALUATED: Final = "evaluated point"
"""Where a trial comes from whose value a user gave."""


@dataclass(frozen=True)
class EvaluatedPoint:
    """Config with the value that it gave.

    Args:
        config: The config, nested or by path; constants may be left out.
        value: The objective's value, or several in order; not looked at of one that failed.
        error: Whether the trial failed.
        pruned: Whether it was stopped early.
        curve: The leading objective's values from the first iteration on.
    """

    config: Mapping[str, Any]
    value: Any
    error: bool = False
    pruned: bool = False
    curve: tuple[float, ...] = ()

    def trial(
        self,
        space: GivenSpace,
        goals: SearchObjectives,
        attributes: Mapping[str, Any],
        *,
        dense_seed: int | None = None,
    ) -> FrozenTrial:
        """Return the point as a trial; see :func:`trial_of`.

        Raises:
            InvalidSettingsError: The space does not hold the config, or a value is no number.
        """
        if not isinstance(self.config, Mapping):
            raise InvalidSettingsError(
                [f"an evaluated point must be a config, not {self.config!r}"]
            )
        params, faults = point_params(space, self.config)
        if faults:
            raise InvalidSettingsError(faults)
        outcome, values = self._outcome(goals)
        earlier = EarlierTrial(
            key="",
            state=TrialState[outcome.optuna],
            params=params,
            text=False,
            values=values,
            curve=dict(enumerate(self.curve, start=1)),
            # What is not known of a constraint counts as broken, as it does for any trial.
            violations=goals.violations(dict(zip(goals.metrics, values or (), strict=False))),
        )
        attributes = {WARM_START: EVALUATED, STOP_REASON: outcome.value, **attributes}
        try:
            return trial_of(earlier, space, goals, attributes, dense_seed=dense_seed)
        except OutsideSpaceError as error:
            wrong = f"the space does not hold the point {dict(self.config)!r}: {error}"
            raise InvalidSettingsError([wrong]) from error

    def _outcome(self, goals: SearchObjectives) -> tuple[Outcome, tuple[float, ...] | None]:
        """Return how the trial ended, and its values unless it failed."""
        if self.error:
            return Outcome.ERROR, None
        several = isinstance(self.value, Sequence) and not isinstance(self.value, str)
        given = tuple(self.value) if several else (self.value,)
        try:
            values = tuple(float(value) for value in given)
        except (TypeError, ValueError):
            values = ()
        if len(values) != len(goals.objectives):
            wanted = " and ".join(goals.metrics)
            rule = f"value must be a number for {wanted}, not {self.value!r}; or set error=True"
            raise InvalidSettingsError([ErrorDetail("add_evaluated_point", rule)])
        if not all(map(is_finite, values)):
            return Outcome.DIVERGED, None
        return (Outcome.PRUNED if self.pruned else Outcome.COMPLETED), values


class OutsideSpaceError(ValueError):
    """A space does not hold an earlier trial; says why."""


def trial_of(
    earlier: EarlierTrial,
    space: GivenSpace,
    goals: SearchObjectives,
    attributes: Mapping[str, Any],
    *,
    dense_seed: int | None = None,
) -> FrozenTrial:
    """Return an earlier trial as one of a study with another space.

    Args:
        earlier: The trial.
        space: The study's search space.
        goals: Its objectives and constraints.
        attributes: User attributes of the trial.
        dense_seed: Seed of the values that inactive parameters get, where the sampler is to be
            shown these too; None where it is not.

    Raises:
        NotHeldError: The space does not hold it, or it lacks what the goals need.
    """
    trial = _evaluated(earlier, space, goals, attributes)
    if dense_seed is not None and isinstance(space, SearchSpace):
        trial = _filled(trial, space, np.random.default_rng(dense_seed))
    return trial


def _evaluated(
    earlier: EarlierTrial, space: GivenSpace, goals: SearchObjectives, attributes: Mapping[str, Any]
) -> FrozenTrial:
    curve = {step: value for step, value in earlier.curve.items() if is_finite(value)}
    if earlier.state is TrialState.COMPLETE and not earlier.values:
        raise OutsideSpaceError(f"they have no finite value of {goals}")
    if earlier.state is TrialState.PRUNED and not curve and not earlier.values:
        raise OutsideSpaceError(f"they were stopped before a value of {goals.leading.metric}")
    if goals.constraints and earlier.violations is None:
        raise OutsideSpaceError("they do not tell all constrained metrics")
    params, distributions = _held(_typed(earlier, space), space)
    single = len(goals.objectives) == 1
    values = earlier.values or ((curve[max(curve)],) if single and curve else None)
    if earlier.state is TrialState.FAIL:
        values = None
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


def _filled(trial: FrozenTrial, space: SearchSpace, rng: np.random.Generator) -> FrozenTrial:
    """Return a trial with values drawn for the parameters that it has not."""
    params, distributions = dict(trial.params), dict(trial.distributions)
    for path, parameter in space.parameters.items():
        if path not in params and not isinstance(parameter, Constant):
            value = parameter.draw(rng)
            params[path] = label_of(value, parameter) if isinstance(parameter, Choice) else value
            distributions[path] = distribution(parameter)
    trial.distributions = distributions
    trial.params = params
    return trial


def _typed(earlier: EarlierTrial, space: GivenSpace) -> dict[str, Any]:
    """Return an earlier trial's values by path as Optuna stores them in this space."""
    params = {**earlier.constants, **earlier.params}
    if isinstance(space, SearchSpace):
        for path, parameter in space.parameters.items():
            if path not in params:
                continue
            if isinstance(parameter, Choice) and path in earlier.constants:
                if parameter.fault(params[path]) is None:
                    params[path] = label_of(params[path], parameter)
            elif isinstance(parameter, Choice) and earlier.text:
                params[path] = _option(params[path], parameter)
    if not earlier.text:
        return params
    if isinstance(space, Space):
        space = space.distributions()
    if not isinstance(space, Mapping):
        raise OutsideSpaceError("texts of MLflow cannot be read for a space that is a callable")
    return {path: _parsed(text, space.get(path)) for path, text in params.items()}


def _option(text: str, parameter: Choice) -> Any:
    """Return what Optuna stores for the option that a text stands for."""
    for option in parameter.options:
        if str(option) == text:
            return label_of(option, parameter)
    return text


def _parsed(text: Any, distribution: BaseDistribution | None) -> Any:
    """Return the value that a text stands for; the text if it cannot be one."""
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


def _held(
    params: Mapping[str, Any], space: GivenSpace
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Return the active parameters of a space with their distributions.

    Raises:
        NotHeldError: The space does not hold the values.
    """
    fixed = FixedTrial(dict(params))
    try:
        with warnings.catch_warnings(action="error"):  # Optuna warns of what is out of range
            values = suggest_of(space)(fixed)
    except (ValueError, UserWarning) as error:
        raise OutsideSpaceError(_why(params, fixed, space)) from error
    for path, value in params.items():
        if path in fixed.params:
            continue
        if callable(space) and path in values and _same(value, values[path]):
            continue
        constant = space.parameters.get(path) if isinstance(space, SearchSpace) else None
        if not isinstance(constant, Constant):
            what = "is inactive here" if constant is not None else "is no parameter here"
            raise OutsideSpaceError(f"their {dotted(path)} {what}")
        if path in values and not _same(value, constant.value):
            raise OutsideSpaceError(f"their {dotted(path)} is not {constant.value!r}")
    return dict(fixed.params), dict(fixed.distributions)


def _why(params: Mapping[str, Any], fixed: FixedTrial, space: GivenSpace) -> str:
    """Return why a space does not hold values: the first parameter that was not accepted."""
    if isinstance(space, SearchSpace):
        for path, parameter in space.parameters.items():
            if path in fixed.params or isinstance(parameter, Constant):
                continue
            if path not in params:
                active = parameter.condition.holds(fixed.params)
                if active:
                    return f"they lack {dotted(path)}"
                continue
            return f"their {dotted(path)} is out of range here"
    return "their parameters are out of range here"


def _same(value: Any, constant: Any) -> bool:
    return hashable(value) == hashable(constant) or str(value) == str(constant)
