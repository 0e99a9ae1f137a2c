"""Saved state of a trial registry, and its reconciliation with a study.

A storage is written sequentially, so what it can lose, as after a power failure, are the last
trials, and the last writes of the trial before them.
"""

import copy
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FixedTrial, FrozenTrial, TrialState, create_trial

from tune_tf.errors import SweepConflictError
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID, WARM_START
from tune_tf.searchers.trial_progress import TrialProgress
from tune_tf.space.optuna_form import OptunaSpace

_log = logging.getLogger(__name__)

Configs = Mapping[str, Mapping[str, Any]]
"""The configs of the trials that Tune knows, flat, by id."""


@dataclass
class TrialRecord:
    """Registry entry of one trial.

    Args:
        number: Optuna's trial number.
        progress: What its results say.
        finished: Whether Optuna knows the outcome.
    """

    number: int
    progress: TrialProgress = field(default_factory=TrialProgress)
    finished: bool = False


@dataclass
class RegistryState:
    """Saved state of a trial registry.

    Args:
        records: Trials by Tune's id.
        orphans: Numbers of trials that wait to be assigned again, in order.
        num_known: Number of trials asked for when the state was saved.
        reconciled: Whether the study was compared with Tune before; else nothing is known.
    """

    records: dict[str, TrialRecord] = field(default_factory=dict)
    orphans: list[int] = field(default_factory=list)
    num_known: int = 0
    reconciled: bool = False

    def copy(self) -> "RegistryState":
        """Return an independent copy."""
        return copy.deepcopy(self)

    def adopt_orphans(
        self, trials: Collection[FrozenTrial], tune_ids: Collection[str] | None
    ) -> bool:
        """Find the trials of a study that no Tune trial will finish, and queue them as orphans.

        The trials that Tune knows decide where state and study disagree, since the files of one
        save may differ in age.

        Returns:
            Whether trials were sampled that the sampler does not know.
        """
        if tune_ids is not None:
            self.records = {
                tune_id: record
                for tune_id, record in self.records.items()
                if record.finished or tune_id in tune_ids
            }
        owned = {record.number for record in self.records.values()} | set(self.orphans)
        linked: dict[str, TrialRecord] = {}
        orphans: list[int] = []
        for trial in trials:
            tune_id = str(trial.user_attrs.get(TUNE_TRIAL_ID))
            if trial.number in owned:
                continue
            if tune_id in (tune_ids or ()):
                linked[tune_id] = TrialRecord(trial.number)
            elif _is_orphan(trial, self.num_known):
                orphans.append(trial.number)
        unknown = bool(orphans or linked) if self.reconciled else any(map(_was_drawn, trials))
        self.records.update(linked)
        self.orphans = sorted(self.orphans + orphans)
        self.num_known, self.reconciled = next_number(trials), True
        return unknown


def _is_orphan(trial: FrozenTrial, num_known: int) -> bool:
    """Return whether a trial without a Tune trial is to be assigned again.

    A finished one is, if Tune asked for it after the state was saved: Tune has lost it and will ask
    again.
    """
    if trial.state.is_finished():
        return trial.number >= num_known and TUNE_TRIAL_ID in trial.user_attrs
    return trial.state is TrialState.RUNNING


def _was_drawn(trial: FrozenTrial) -> bool:
    """Return whether this study's sampler drew a trial's parameters."""
    return WARM_START not in trial.user_attrs and trial.state is not TrialState.WAITING


def next_number(trials: Collection[FrozenTrial]) -> int:
    """Return the highest number of a trial that is not waiting, plus one."""
    asked = (trial.number for trial in trials if trial.state is not TrialState.WAITING)
    return max(asked, default=-1) + 1


class StorageRecovery:
    """Restores lost trials of a study, with their numbers and configs.

    Raises:
        SweepConflictError: The study has fewer trials than the state and does not identify the
            missing ones: it is another study.
    """

    def __init__(
        self, study: optuna.Study, storage: BaseStorage, suggest: OptunaSpace, state: RegistryState
    ) -> None:
        """Find the lost trials; the study is not changed."""
        self._study = study
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._suggest = suggest
        self._state = state
        by_number = {record.number: tune_id for tune_id, record in state.records.items()}
        self._tune_id_by_number = by_number
        num_trials = len(study.get_trials(deepcopy=False))
        lost = range(num_trials, state.num_known)
        if any(number not in by_number and number not in state.orphans for number in lost):
            raise SweepConflictError(
                f"study {study.study_name!r} has {num_trials} trials, but the searcher's "
                f"state knows {state.num_known}: it was saved with another study or storage"
            )
        self._tune_ids = [by_number.get(number, "") for number in lost]

    def restore_trials(self, configs: Configs) -> None:
        """Create the lost trials again, and complete the one before them."""
        self._complete_last(configs)
        for tune_id in self._tune_ids:
            self._create_trial(tune_id, configs.get(tune_id, {}))
        if self._tune_ids:
            _log.warning(
                "study %s had lost its last %d trials; they are restored without their curves",
                self._study.study_name,
                len(self._tune_ids),
            )
        self._tune_ids = []

    def add_missing(self, configs: Configs) -> bool:
        """Create the trials that started after the state was saved; return whether there were any.

        Where no id is known, Tune's trials have other ids, as those of a Repeater.
        """
        records = self._state.records
        if not records.keys() & configs.keys():
            return False
        unknown = [tune_id for tune_id in configs if tune_id not in records]
        for tune_id in unknown:
            number = self._create_trial(tune_id, configs[tune_id])
            records[tune_id] = TrialRecord(number)
            self._state.num_known = number + 1
        return bool(unknown)

    def _complete_last(self, configs: Configs) -> None:
        """Complete the last stored trial with what would have been written next."""
        trials = self._study.get_trials(deepcopy=False)
        if not trials or trials[-1].state.is_finished() or trials[-1].intermediate_values:
            return  # later writes are there
        last = trials[-1]
        tune_id = self._tune_id_by_number.get(last.number)
        if tune_id is None:
            return
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(
            self._study_id, last.number
        )
        if TUNE_TRIAL_ID not in last.user_attrs:
            self._storage.set_trial_user_attr(trial_id, TUNE_TRIAL_ID, tune_id)
        fixed = FixedTrial(dict(configs.get(tune_id, {})), last.number)
        with suppress(ValueError):  # config unknown or changed by a scheduler
            self._suggest(fixed)
            for name in fixed.params.keys() - last.params.keys():
                distribution = fixed.distributions[name]
                value = distribution.to_internal_repr(fixed.params[name])
                self._storage.set_trial_param(trial_id, name, value, distribution)

    def _create_trial(self, tune_id: str, config: Mapping[str, Any]) -> int:
        """Create a trial again; return its number, which is the next one."""
        attributes = {TUNE_TRIAL_ID: tune_id} if tune_id else {}
        fixed = FixedTrial(dict(config), len(self._study.get_trials(deepcopy=False)))
        template = create_trial(state=TrialState.RUNNING, user_attrs=attributes)
        with suppress(ValueError):  # config unknown, or out of range because a scheduler changed it
            self._suggest(fixed)
            template = create_trial(
                state=TrialState.RUNNING,
                params=fixed.params,
                distributions=fixed.distributions,
                user_attrs=attributes,
            )
        trial_id = self._storage.create_new_trial(self._study_id, template)
        return self._storage.get_trial(trial_id).number
