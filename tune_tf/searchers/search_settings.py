"""Settings of a searcher, and the study created from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.earlier_trial import EarlierTrial, point_params
from tune_tf.searchers.replay import ReplayedTrial, frozen_trials
from tune_tf.searchers.samplers.catalogue import (
    is_continuous,
    make_sampler,
    needs_dense,
)
from tune_tf.searchers.samplers.custom_samplers import ExhaustiveSampler
from tune_tf.searchers.samplers.new_configs import NewConfigSampler
from tune_tf.searchers.samplers.seen_trials import SeenTrials
from tune_tf.searchers.study_storage import Storage, open_study
from tune_tf.searchers.trial_attrs import POINT
from tune_tf.searchers.trial_progress import TrialProgress
from tune_tf.searchers.warm_start import ImportSummary, WarmStart, import_trials
from tune_tf.space import SearchSpace
from tune_tf.space.optuna_form import OptunaSpace
from tune_tf.tune_internals import controller


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

    def make_sampler(self, num_trials: int = 0) -> BaseSampler:
        """Create the sampler, for a study with so many trials.

        Raises:
            InvalidSettingsError: It is unknown, or does not support the space or the criteria.
        """
        return make_sampler(
            self.sampler,
            self.seed,
            space=self.space,
            num_objectives=len(self.criteria.objectives),
            arguments=self.arguments,
            num_trials=num_trials,
        )

    def sampled_study(
        self, study: optuna.Study, storage: BaseStorage, sampler: BaseSampler
    ) -> optuna.Study:
        """Return a study as a sampler sees it, with what it is asked through.

        A user's sampler may repeat configs on purpose.
        """
        if isinstance(sampler, TPESampler):
            num_objectives = len(self.criteria.objectives)
            storage = SeenTrials(storage, controller.rungs, num_objectives)  # type: ignore[assignment]
        is_ours = isinstance(self.sampler, str) and not isinstance(sampler, ExhaustiveSampler)
        if is_ours and not any(map(is_continuous, self.space.distributions().values())):
            sampler = NewConfigSampler(sampler, self.suggest)
        return optuna.load_study(study_name=study.study_name, storage=storage, sampler=sampler)

    def open_study(
        self,
        storage: BaseStorage,
        study_name: str | None,
        replayed: Sequence[tuple[ReplayedTrial, TrialProgress]] = (),
    ) -> tuple[optuna.Study, ImportSummary | None]:
        """Open the study, or create it: with earlier results, the trials so far, and the points.

        Raises:
            SweepConflictError: The study has other objectives.
            InvalidSettingsError: The earlier results cannot be read.
        """
        study, summary = open_study(storage, study_name, self.criteria), None
        dense = needs_dense(self.sampler)
        if self.earlier is not None or self.warm_start is not None:
            source = str(self.warm_start.source) if self.warm_start else "an earlier session"
            earlier = self.warm_start.read(self.criteria) if self.warm_start else ()
            if self.earlier is not None:
                earlier = (EarlierTrial(**each) for each in self.earlier)
            summary = import_trials(study, self.space, self.criteria, earlier, source, dense=dense)
        study.add_trials(
            frozen_trials(replayed, self.space, self.criteria, self.params, dense=dense)
        )
        enqueue(study, self.params)
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
