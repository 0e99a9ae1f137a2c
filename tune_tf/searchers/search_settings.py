"""Settings of a searcher, and the study created from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import optuna
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage

from tune_tf.errors import ErrorDetail, InvalidSettingsError, SweepConflictError
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.earlier_trial import from_json, point_params
from tune_tf.searchers.samplers.catalogue import (
    is_continuous,
    make_sampler,
    needs_dense,
    reseed_sampler,
)
from tune_tf.searchers.samplers.custom_samplers import ExhaustiveSampler
from tune_tf.searchers.samplers.new_configs import NewConfigSampler
from tune_tf.searchers.space_record import check_space
from tune_tf.searchers.storage.rung_values import RungValues
from tune_tf.searchers.storage.study_storage import Storage, open_study, quiet_logging
from tune_tf.searchers.warm_start import OBJECTIVE, ImportSummary, WarmStart, import_trials
from tune_tf.space import SearchSpace
from tune_tf.space.optuna_form import OptunaSpace
from tune_tf.tune_internals import controller

POINT: Final = "point_to_evaluate"
"""User attribute of an Optuna trial: the index of the point that it was made for."""


@dataclass(frozen=True)
class SearchSettings:
    """Immutable settings of a searcher.

    Args:
        space: The search space.
        criteria: Objectives and constraints.
        sampler: Name or sampler.
        seed: Seed of a sampler given by name.
        storage: The study's storage.
        study_name: The study's name; None for a generated one.
        points: Configs to try first.
        warm_start: Source of earlier results, if any.
        arguments: Further arguments of a sampler given by name.
        earlier: What the warm start imported when the sweep began, in place of its source.

    Raises:
        InvalidSettingsError: The space does not contain a point.
    """

    space: SearchSpace
    criteria: SearchCriteria
    sampler: str | BaseSampler
    seed: int | None
    storage: Storage
    study_name: str | None
    points: tuple[Mapping[str, Any], ...] = ()
    warm_start: WarmStart | None = None
    arguments: Mapping[str, Any] | None = None
    earlier: tuple[Mapping[str, Any], ...] | None = None
    params: tuple[dict[str, Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Validate the points."""
        object.__setattr__(self, "params", tuple(points_to_params(self.space, self.points)))

    @property
    def suggest(self) -> OptunaSpace:
        """The space in the form that the sampler learns from."""
        return OptunaSpace(self.space, dense=needs_dense(self.sampler))

    def make_sampler(self) -> BaseSampler:
        """Create the sampler.

        Raises:
            InvalidSettingsError: It is unknown, or does not support the space or the criteria.
        """
        return make_sampler(
            self.sampler,
            self.seed,
            space=self.space,
            num_objectives=len(self.criteria.objectives),
            arguments=self.arguments,
        )

    def reseed_sampler(self, current: BaseSampler, num_trials: int) -> BaseSampler:
        """Return a sampler that does not repeat the draws of ``current``."""
        return reseed_sampler(
            current,
            self.sampler,
            self.seed,
            num_trials,
            space=self.space,
            num_objectives=len(self.criteria.objectives),
            arguments=self.arguments,
        )

    def sampled_study(
        self, storage: BaseStorage, study_name: str, sampler: BaseSampler
    ) -> optuna.Study:
        """Return the study as a sampler sees it, with what it is asked through.

        A user's sampler may repeat configs on purpose.
        """
        if isinstance(sampler, TPESampler):
            num_objectives = len(self.criteria.objectives)
            storage = RungValues(storage, controller.rungs, num_objectives)  # type: ignore[abstract]
        is_ours = isinstance(self.sampler, str) and not isinstance(sampler, ExhaustiveSampler)
        if is_ours and not any(map(is_continuous, self.space.distributions().values())):
            sampler = NewConfigSampler(sampler, self.suggest)
        with quiet_logging():
            return optuna.load_study(study_name=study_name, storage=storage, sampler=sampler)

    def open_study(
        self, storage: BaseStorage, study_name: str | None
    ) -> tuple[optuna.Study, ImportSummary | None]:
        """Open the study, or create it with the trials of its warm start.

        Raises:
            SweepConflictError: The study has another objective or search space.
            InvalidSettingsError: The earlier results cannot be read.
        """
        study = open_study(storage, study_name, self.criteria)
        objective = study.user_attrs.get(OBJECTIVE)
        if objective is None:
            study.set_user_attr(OBJECTIVE, str(self.criteria))
        elif objective != str(self.criteria):
            raise SweepConflictError(
                f"study {study.study_name!r} already exists with the objective {objective}, not "
                f"{self.criteria}: use another study_name or its original objective"
            )
        check_space(study, self.space)
        summary = None
        if self.earlier is not None:
            study.add_trials(from_json(each, self.space) for each in self.earlier)
            source = str(self.warm_start.source) if self.warm_start else "an earlier session"
            summary = ImportSummary(source, len(self.earlier))
        elif self.warm_start is not None:
            dense = needs_dense(self.sampler)
            summary = import_trials(study, self.space, self.criteria, self.warm_start, dense=dense)
        return study, summary


def points_to_params(
    space: SearchSpace, points: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Convert nested configs, in which constants may be left out, to Optuna's parameters.

    Raises:
        InvalidSettingsError: The space does not contain a config; lists all errors.
    """
    errors: list[ErrorDetail] = []
    params: list[dict[str, Any]] = []
    for index, point in enumerate(points):
        where = f"points_to_evaluate.{index}"
        if not isinstance(point, Mapping):
            errors.append(ErrorDetail(where, f"must be a config, not {point!r}"))
            continue
        point_values, point_errors = point_params(space, point)
        params.append(point_values)
        errors += [each.within(where) for each in point_errors]
    if errors:
        raise InvalidSettingsError(errors)
    return params


def enqueue(study: optuna.Study, params: Sequence[Mapping[str, Any]]) -> None:
    """Enqueue the points that the study has not had yet."""
    if not params:
        return
    known = {trial.user_attrs.get(POINT) for trial in study.get_trials(deepcopy=False)}
    for index, point in enumerate(params):
        if index not in known:
            study.enqueue_trial(dict(point), user_attrs={POINT: index})
