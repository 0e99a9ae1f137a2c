"""What a study's storage has lost of trials that Tune knows, as after a loss of power."""

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
    """Gives a study its trials back, with their numbers and configs.

    A storage is written to from its start to its end, so what is lost are its last trials, and of
    the one before them what was written of it last.

    Args:
        study: The study.
        storage: Where it is kept.
        suggest: The search space.
        page: What the searcher knows of the study's trials.

    Raises:
        SweepConflictError: The study has fewer trials than the page tells of, and it does not say
            which those are: it is another study's.
    """

    def __init__(
        self, study: optuna.Study, storage: BaseStorage, suggest: Suggest, page: RegistryState
    ) -> None:
        """Find out what is lost; the study is not changed."""
        self._study = study
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._suggest = suggest
        self._page = page
        by_number = {entry.number: tune_id for tune_id, entry in page.entries.items()}
        num_trials = len(study.get_trials(deepcopy=False))
        lost = range(num_trials, page.num_known)
        if any(number not in by_number and number not in page.orphans for number in lost):
            raise SweepConflictError(
                f"study {study.study_name!r} has {num_trials} trials, but the searcher's "
                f"state knows {page.num_known}: it was saved with another study or storage"
            )
        self._tune_ids = [by_number.get(number, "") for number in lost]

    def give_back(self, configs: Configs) -> None:
        """Make those anew that the page tells of, and complete the one before them."""
        self._complete_last(configs)
        for tune_id in self._tune_ids:
            self._make(tune_id, configs.get(tune_id, {}))
        if self._tune_ids:
            _log.warning(
                "study %s had lost its last %d trials; they are there again, without their curves",
                self._study.study_name,
                len(self._tune_ids),
            )
        self._tune_ids = []

    def add_unknown(self, configs: Configs) -> bool:
        """Make those anew that began after the page was written; return whether there were any.

        Where no id is known, Tune's trials go by others, as those of a Repeater do.
        """
        entries = self._page.entries
        if not entries.keys() & configs.keys():
            return False
        unknown = [tune_id for tune_id in configs if tune_id not in entries]
        for tune_id in unknown:
            number = self._make(tune_id, configs[tune_id])
            entries[tune_id] = TrialRecord(number)
            self._page.num_known = number + 1
        return bool(unknown)

    def _complete_last(self, configs: Configs) -> None:
        """Give the last trial that is there what was to be written next when it was asked for."""
        trials = self._study.get_trials(deepcopy=False)
        if not trials or trials[-1].state.is_finished() or trials[-1].intermediate_values:
            return  # what comes after its parameters is there
        last = trials[-1]
        of_last = (key for key, entry in self._page.entries.items() if entry.number == last.number)
        tune_id = next(of_last, None)
        if tune_id is None:
            return
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(
            self._study_id, last.number
        )
        if TUNE_TRIAL_ID not in last.user_attrs:
            self._storage.set_trial_user_attr(trial_id, TUNE_TRIAL_ID, tune_id)
        again = FixedTrial(dict(configs.get(tune_id, {})), last.number)
        with suppress(ValueError):  # its config is not known, or was changed by a scheduler
            self._suggest(again)
            for name in again.params.keys() - last.params.keys():
                kind = again.distributions[name]
                value = kind.to_internal_repr(again.params[name])
                self._storage.set_trial_param(trial_id, name, value, kind)

    def _make(self, tune_id: str, config: Mapping[str, Any]) -> int:
        """Make a trial anew; return its number, which is the next one."""
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
        except ValueError:  # its config is not known, or was changed by a scheduler
            made = create_trial(state=TrialState.RUNNING, user_attrs=attributes)
        return self._storage.get_trial(self._storage.create_new_trial(self._study_id, made)).number
