"""What a searcher was made with, and the study that follows from it."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.searchers.initial_points import POINT, enqueue, missing_points, params_of_points
from tune_tf.searchers.objectives import SearchObjectives
from tune_tf.searchers.samplers.catalogue import (
    make_sampler,
    needs_dense,
    renewed,
    shown_rule,
    uses_constraints,
)
from tune_tf.searchers.space_adapter import GivenSpace, Suggest, suggest_of
from tune_tf.searchers.space_record import check_space
from tune_tf.searchers.storage.filtered import FilteredStorage, RungSource, no_rungs
from tune_tf.searchers.storage.study_storage import Storage, open_study, quiet_logging
from tune_tf.searchers.trial_registry import SamplerView
from tune_tf.searchers.warm_start.earlier_trials import OBJECTIVE
from tune_tf.searchers.warm_start.evaluated_trial import EvaluatedPoint
from tune_tf.searchers.warm_start.warm_start import ImportSummary, WarmStart, import_trials


@dataclass(frozen=True)
class SearchSettings:
    """What does not change while a searcher lives.

    Args:
        space: The search space.
        goals: Objectives and constraints.
        sampler: Name or sampler.
        seed: Seed of a sampler given by name.
        storage: Where the study is kept.
        study_name: Its name; None for one that Optuna makes up.
        rungs: Where they are to be asked for, if not of the scheduler.
        points: Configs to try first.
        rewards: What the points gave, if they were evaluated already.
        warm_start: Earlier results, if there are any.
        allow_changed_space: Whether a study may go on with another space.

    Raises:
        InvalidSettingsError: The space does not hold a point, or there are not as many rewards.
    """

    space: GivenSpace
    goals: SearchObjectives
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
        """Refuse points that the space does not hold."""
        object.__setattr__(self, "params", tuple(params_of_points(self.space, self.points)))
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
            self._rewarded(index)

    @property
    def suggest(self) -> Suggest:
        """The space in the form that the sampler learns from."""
        return suggest_of(self.space, dense=needs_dense(self.sampler))

    def make_sampler(self) -> BaseSampler:
        """Return the sampler.

        Raises:
            InvalidSettingsError: It is not known, or cannot take the space or the goals.
        """
        return make_sampler(self.sampler, self.seed, **self._asked)

    @property
    def unused_constraints(self) -> tuple[Constraint, ...]:
        """The constraints that the sampler makes nothing of."""
        return () if uses_constraints(self.sampler) else self.goals.constraints

    def renewed(self, current: BaseSampler, num_trials: int) -> BaseSampler:
        """Return a sampler that does not draw what ``current`` may have drawn before."""
        return renewed(current, self.sampler, self.seed, num_trials, **self._asked)

    @property
    def _asked(self) -> dict[str, Any]:
        return {
            "space": self.space,
            "num_objectives": len(self.goals.objectives),
            "has_constraints": bool(self.goals.constraints),
        }

    def desk(
        self, storage: BaseStorage, study_name: str, sampler: BaseSampler, rungs: RungSource
    ) -> SamplerView:
        """Return where the sampler works: it sees trials at rungs, running ones too."""
        rule = shown_rule(
            self.sampler,
            len(self.goals.objectives),
            has_constraints=bool(self.goals.constraints),
        )
        shown = FilteredStorage(storage, rungs, rule)
        with quiet_logging():
            study = optuna.load_study(study_name=study_name, storage=shown, sampler=sampler)
        # A sampler that the user made may repeat itself on purpose.
        return SamplerView(study, shown, rungs if isinstance(self.sampler, str) else no_rungs)

    def without_storage(self) -> "SearchSettings":
        """Return the same for a study that travels by itself."""
        return replace(self, storage=None)

    def open_study(
        self, storage: BaseStorage, study_name: str | None
    ) -> tuple[optuna.Study, ImportSummary | None]:
        """Open the study, or make it with what it starts from.

        Raises:
            SweepConflictError: The study has another objective or search space.
            InvalidSettingsError: The earlier results cannot be read.
        """
        study = open_study(storage, study_name, self.goals)
        theirs = study.user_attrs.get(OBJECTIVE)
        if theirs is None:
            study.set_user_attr(OBJECTIVE, str(self.goals))
        elif theirs != str(self.goals):
            raise SweepConflictError(
                f"study {study.study_name!r} is there already and its objective is {theirs}, not "
                f"{self.goals}: give another study_name, or the objective it was made with"
            )
        check_space(study, self.space, allow_changed=self.allow_changed_space)
        taken = None
        if self.warm_start is not None:
            dense = needs_dense(self.sampler)
            taken = import_trials(study, self.space, self.goals, self.warm_start, dense=dense)
        if self.rewards:
            for index in missing_points(study, len(self.rewards)):
                study.add_trial(self._rewarded(index))
        else:
            enqueue(study, self.params)
        return study, taken

    def evaluated(self, point: EvaluatedPoint, **attributes: Any) -> FrozenTrial:
        """Return a trial that was evaluated elsewhere as one of the study.

        Raises:
            InvalidSettingsError: The space does not hold it, or it has no values of the goals.
        """
        seed = zlib.crc32(repr(point).encode()) if needs_dense(self.sampler) else None
        return point.trial(self.space, self.goals, attributes, dense_seed=seed)

    def _rewarded(self, index: int) -> FrozenTrial:
        point = EvaluatedPoint(self.points[index], self.rewards[index])
        return self.evaluated(point, **{POINT: index})
