"""Configs that are to be tried first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import TrialState, create_trial

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.searchers.space_adapter import GivenSpace, Space
from tune_tf.space import Choice, Constant, SearchSpace, flat
from tune_tf.space.frozen import hashable
from tune_tf.space.optuna_form import Label, labels

POINT: Final = "point_to_evaluate"
"""User attribute of an Optuna trial: the index of the point that it was made for."""


def params_of_points(
    space: GivenSpace, points: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Return Optuna's parameters of configs to try first.

    Args:
        space: The search space.
        points: Nested configs. Constants may be left out. A space that is a callable cannot be
            looked into: there, what a config leaves out is drawn.

    Raises:
        InvalidSettingsError: The space does not hold a config; all faults of all of them at once.
    """
    faults: list[ErrorDetail] = []
    params: list[dict[str, Any]] = []
    for index, point in enumerate(points or ()):
        where = f"points_to_evaluate.{index}"
        if not isinstance(point, Mapping):
            faults.append(ErrorDetail(where, f"must be a config, not {point!r}"))
            continue
        found, wrong = point_params(space, point)
        params.append(found)
        faults += [ErrorDetail(_below(where, each.where), each.what) for each in wrong]
    if faults:
        raise InvalidSettingsError(faults)
    return params


def point_params(
    space: GivenSpace, config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ErrorDetail]]:
    """Return Optuna's parameters of a nested config, and why the space does not hold it."""
    if isinstance(space, SearchSpace):
        return _of_space(space, config)
    if isinstance(space, Space):
        space = space.distributions()
    given = flat(config)
    return given, _faults(space, given) if isinstance(space, Mapping) else []


def enqueue(study: optuna.Study, params: Sequence[Mapping[str, Any]]) -> None:
    """Have points asked for first, unless the study has had them."""
    for index in missing_points(study, len(params)):
        study.enqueue_trial(dict(params[index]), user_attrs={POINT: index})


def missing_points(study: optuna.Study, num_points: int) -> list[int]:
    """Return the indices of the points that a study has not had."""
    if not num_points:
        return []
    had = {trial.user_attrs.get(POINT) for trial in study.get_trials(deepcopy=False)}
    return [index for index in range(num_points) if index not in had]


def label_of(value: Any, choice: Choice) -> Label:
    """Return what Optuna stores for an option."""
    keys = [hashable(option) for option in choice.options]
    return labels(choice.options)[keys.index(hashable(value))]


def _of_space(
    space: SearchSpace, config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ErrorDetail]]:
    given = flat(config, space.parameters)
    whole: dict[str, Any] = {}
    params: dict[str, Any] = {}
    for path, parameter in space.parameters.items():
        active = parameter.condition.holds(whole)
        if active and isinstance(parameter, Constant) and path not in given:
            given[path] = parameter.value
        if active and path in given:
            value = whole[path] = given[path]
            if isinstance(parameter, Choice) and parameter.fault(value) is None:
                value = label_of(value, parameter)
            if not isinstance(parameter, Constant):
                params[path] = value
    return params, space.validate(given)


def _faults(
    distributions: Mapping[str, BaseDistribution], given: Mapping[str, Any]
) -> list[ErrorDetail]:
    faults = [ErrorDetail(path, "is no parameter") for path in given if path not in distributions]
    for path, distribution in distributions.items():
        if path not in given:
            faults.append(ErrorDetail(path, "is missing"))
            continue
        try:
            create_trial(
                state=TrialState.WAITING,
                params={path: given[path]},
                distributions={path: distribution},
            )
        except (ValueError, TypeError):
            faults.append(ErrorDetail(path, f"must be of {distribution!r}, not {given[path]!r}"))
    return faults


def _below(where: str, path: str) -> str:
    return f"{where}.{path}" if path else where
