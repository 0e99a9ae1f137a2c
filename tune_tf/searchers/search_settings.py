"""Settings of a searcher, and the study created from them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from tune_tf.errors import ErrorDetail, InvalidSettingsError, SweepConflictError
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.evaluated_trial import EvaluatedPoint
from tune_tf.searchers.sampler_view import SamplerView
from tune_tf.searchers.samplers.catalogue import (
    make_sampler,
    needs_dense,
    reseed_sampler,
    visibility_for,
)
from tune_tf.searchers.space_adapter import GivenSpace, Suggest, point_params, suggest_of
from tune_tf.searchers.space_record import check_space
from tune_tf.searchers.storage.filtered import FilteredStorage, RungSource, no_rungs
from tune_tf.searchers.storage.study_storage import Storage, open_study, quiet_logging
from tune_tf.searchers.warm_start import OBJECTIVE, ImportSummary, WarmStart, import_trials

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
        rungs: Returns the rungs, if they do not come from the scheduler.
        points: Configs to try first.
        rewards: Values of the points, if they were evaluated already.
        warm_start: Source of earlier results, if any.
        allow_changed_space: Whether a study may continue with another space.

    Raises:
        InvalidSettingsError: The space does not contain a point, or the number of rewards differs
            from that of points.
    """

    space: GivenSpace
    criteria: SearchCriteria
    sampler: str | BaseSampler
    seed: int | None
    storage: Storage
    study_name: str | None
    rungs: RungSource | None = None
    points: tuple[Mapping[str, Any], ...] = ()
    rewards: tuple[Any, ...] = ()
    warm_start: WarmStart | None = None
    allow_changed_space: bool = False
    params: tuple[dict[str, Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Validate the points."""
        object.__setattr__(self, "params", tuple(points_to_params(self.space, self.points)))
        if self.rewards and len(self.rewards) != len(self.points):
            raise InvalidSettingsError(
                [
                    (
                        f"evaluated_rewards has {len(self.rewards)} values for "
                        f"{len(self.points)} points_to_evaluate: give one for each"
                    )
                ]
            )
        for index in range(len(self.rewards)):
            self._rewarded_trial(index)

    @property
    def suggest(self) -> Suggest:
        """The space in the form that the sampler learns from."""
        return suggest_of(self.space, dense=needs_dense(self.sampler))

    def make_sampler(self) -> BaseSampler:
        """Create the sampler.

        Raises:
            InvalidSettingsError: It is unknown, or does not support the space or the criteria.
        """
        return make_sampler(self.sampler, self.seed, **self._sampler_arguments)

    def reseed_sampler(self, current: BaseSampler, num_trials: int) -> BaseSampler:
        """Return a sampler that does not repeat the draws of ``current``."""
        return reseed_sampler(
            current, self.sampler, self.seed, num_trials, **self._sampler_arguments
        )

    @property
    def _sampler_arguments(self) -> dict[str, Any]:
        return {
            "space": self.space,
            "num_objectives": len(self.criteria.objectives),
            "has_constraints": bool(self.criteria.constraints),
        }

    def sampler_view(
        self, storage: BaseStorage, study_name: str, sampler: BaseSampler, rungs: RungSource
    ) -> SamplerView:
        """Return the sampler's view of the study: trials at rungs, running ones included."""
        visibility = visibility_for(
            self.sampler,
            len(self.criteria.objectives),
            has_constraints=bool(self.criteria.constraints),
        )
        filtered = FilteredStorage(storage, rungs, visibility)  # type: ignore[abstract]
        with quiet_logging():
            study = optuna.load_study(study_name=study_name, storage=filtered, sampler=sampler)
        # A user's sampler may repeat configs on purpose.
        return SamplerView(study, filtered, rungs if isinstance(self.sampler, str) else no_rungs)

    def open_study(
        self, storage: BaseStorage, study_name: str | None
    ) -> tuple[optuna.Study, ImportSummary | None]:
        """Open the study, or create it with its initial trials.

        Raises:
            SweepConflictError: The study has another objective or search space.
            InvalidSettingsError: The earlier results cannot be read.
        """
        study = open_study(storage, study_name, self.criteria)
        theirs = study.user_attrs.get(OBJECTIVE)
        if theirs is None:
            study.set_user_attr(OBJECTIVE, str(self.criteria))
        elif theirs != str(self.criteria):
            raise SweepConflictError(
                f"study {study.study_name!r} already exists with the objective {theirs}, not "
                f"{self.criteria}: use another study_name or its original objective"
            )
        check_space(study, self.space, allow_changed=self.allow_changed_space)
        taken = None
        if self.warm_start is not None:
            dense = needs_dense(self.sampler)
            taken = import_trials(study, self.space, self.criteria, self.warm_start, dense=dense)
        if self.rewards:
            for index in missing_points(study, len(self.rewards)):
                study.add_trial(self._rewarded_trial(index))
        else:
            enqueue(study, self.params)
        return study, taken

    def evaluated_trial(self, point: EvaluatedPoint, **attributes: Any) -> FrozenTrial:
        """Convert a point evaluated elsewhere to a trial of the study.

        Raises:
            InvalidSettingsError: The space does not contain it, or values are missing.
        """
        seed = zlib.crc32(repr(point).encode()) if needs_dense(self.sampler) else None
        return point.trial(self.space, self.criteria, attributes, dense_seed=seed)

    def _rewarded_trial(self, index: int) -> FrozenTrial:
        point = EvaluatedPoint(self.points[index], self.rewards[index])
        return self.evaluated_trial(point, **{POINT: index})


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
        errors += [each.below(where) for each in wrong]
    if errors:
        raise InvalidSettingsError(errors)
    return params


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
