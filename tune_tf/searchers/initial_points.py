"""Initial points: user-given configs that are tried first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import TrialState, create_trial

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.searchers.space_adapter import GivenSpace, distributions_of
from tune_tf.space import Choice, Constant, SearchSpace, flat
from tune_tf.space.optuna_form import label_of

POINT: Final = "point_to_evaluate"
"""User attribute of an Optuna trial: the index of the point that it was made for."""


def points_to_params(
    space: GivenSpace, points: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Convert configs to Optuna's parameters.

    Args:
        space: The search space.
        points: Nested configs. Constants may be left out. If the space is a callable, parameters
            that a config leaves out are sampled.

    Raises:
        InvalidSettingsError: The space does not contain a config; lists all errors.
    """
    errors: list[ErrorDetail] = []
    params: list[dict[str, Any]] = []
    for index, point in enumerate(points or ()):
        where = f"points_to_evaluate.{index}"
        if not isinstance(point, Mapping):
            errors.append(ErrorDetail(where, f"must be a config, not {point!r}"))
            continue
        found, wrong = point_params(space, point)
        params.append(found)
        errors += [ErrorDetail(_join_path(where, each.where), each.what) for each in wrong]
    if errors:
        raise InvalidSettingsError(errors)
    return params


def point_params(
    space: GivenSpace, config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ErrorDetail]]:
    """Return Optuna's parameters of a nested config, and why the space does not contain it."""
    if isinstance(space, SearchSpace):
        return _params_in_space(space, config)
    given = flat(config)
    distributions = distributions_of(space)
    return given, [] if distributions is None else _distribution_errors(distributions, given)


def enqueue(study: optuna.Study, params: Sequence[Mapping[str, Any]]) -> None:
    """Enqueue the points that the study has not had yet."""
    for index in missing_points(study, len(params)):
        study.enqueue_trial(dict(params[index]), user_attrs={POINT: index})


def missing_points(study: optuna.Study, num_points: int) -> list[int]:
    """Return the indices of the points that a study has not had yet."""
    if not num_points:
        return []
    had = {trial.user_attrs.get(POINT) for trial in study.get_trials(deepcopy=False)}
    return [index for index in range(num_points) if index not in had]


def _params_in_space(
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
            if isinstance(parameter, Choice) and parameter.error_for(value) is None:
                value = label_of(value, parameter.options)
            if not isinstance(parameter, Constant):
                params[path] = value
    return params, space.validate(given)


def _distribution_errors(
    distributions: Mapping[str, BaseDistribution], given: Mapping[str, Any]
) -> list[ErrorDetail]:
    errors = [
        ErrorDetail(path, "is not a parameter") for path in given if path not in distributions
    ]
    for path, distribution in distributions.items():
        if path not in given:
            errors.append(ErrorDetail(path, "is missing"))
            continue
        try:
            create_trial(
                state=TrialState.WAITING,
                params={path: given[path]},
                distributions={path: distribution},
            )
        except (ValueError, TypeError):
            errors.append(ErrorDetail(path, f"must be of {distribution!r}, not {given[path]!r}"))
    return errors


def _join_path(where: str, path: str) -> str:
    return f"{where}.{path}" if path else where
