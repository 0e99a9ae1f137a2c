"""Recovery of trials that Tune knows and the study's storage has lost, as after a power failure."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FixedTrial, TrialState, create_trial

from tune_tf.errors import SweepConflictError
from tune_tf.searchers.registry_state import RegistryState, TrialRecord
from tune_tf.searchers.space_adapter import Suggest
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID

_log = logging.getLogger(__name__)

Configs = Mapping[str, Mapping[str, Any]]
"""The configs of the trials that Tune knows, flat, by id."""


class StorageRecovery:
    """Restores lost trials of a study, with their numbers and configs.

    A storage is written sequentially, so what is lost are the last trials, and the last writes of
    the trial before them.

    Args:
        study: The study.
        storage: The study's storage.
        suggest: The search space.
        state: The searcher's record of the trials.

    Raises:
        SweepConflictError: The study has fewer trials than the state and does not identify the
            missing ones: it is another study.
    """

    def __init__(
        self, study: optuna.Study, storage: BaseStorage, suggest: Suggest, state: RegistryState
    ) -> None:
        """Find the lost trials; the study is not changed."""
        self._study = study
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._suggest = suggest
        self._state = state
        by_number = {record.number: tune_id for tune_id, record in state.records.items()}
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
            self._make(tune_id, configs.get(tune_id, {}))
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
            number = self._make(tune_id, configs[tune_id])
            records[tune_id] = TrialRecord(number)
            self._state.num_known = number + 1
        return bool(unknown)

    def _complete_last(self, configs: Configs) -> None:
        """Complete the last stored trial with what would have been written next."""
        trials = self._study.get_trials(deepcopy=False)
        if not trials or trials[-1].state.is_finished() or trials[-1].intermediate_values:
            return  # later writes are there
        last = trials[-1]
        of_last = (
            key for key, record in self._state.records.items() if record.number == last.number
        )
        tune_id = next(of_last, None)
        if tune_id is None:
            return
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(
            self._study_id, last.number
        )
        if TUNE_TRIAL_ID not in last.user_attrs:
            self._storage.set_trial_user_attr(trial_id, TUNE_TRIAL_ID, tune_id)
        again = FixedTrial(dict(configs.get(tune_id, {})), last.number)
        with suppress(ValueError):  # config unknown or changed by a scheduler
            self._suggest(again)
            for name in again.params.keys() - last.params.keys():
                kind = again.distributions[name]
                value = kind.to_internal_repr(again.params[name])
                self._storage.set_trial_param(trial_id, name, value, kind)

    def _make(self, tune_id: str, config: Mapping[str, Any]) -> int:
        """Create a trial again; return its number, which is the next one."""
        attributes = {TUNE_TRIAL_ID: tune_id} if tune_id else {}
        again = FixedTrial(dict(config), len(self._study.get_trials(deepcopy=False)))
        try:
            self._suggest(again)
            made = create_trial(
                state=TrialState.RUNNING,
                params=again.params,
                distributions=again.distributions,
                user_attrs=attributes,
            )
        except ValueError:  # config unknown or changed by a scheduler
            made = create_trial(state=TrialState.RUNNING, user_attrs=attributes)
        return self._storage.get_trial(self._storage.create_new_trial(self._study_id, made)).number
