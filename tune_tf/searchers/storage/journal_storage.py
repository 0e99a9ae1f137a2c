"""Optuna journal storage that lists a study's trials without a walk over all of them."""

import copy
import threading
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.searchers.storage.journal import JournalFile

_FINISHED = tuple(state for state in TrialState if state.is_finished())


@dataclass
class _Listing:
    """Trials of one study, by number."""

    trials: list[FrozenTrial] = field(default_factory=list)
    unfinished: dict[int, int] = field(default_factory=dict)  # number by trial id
    changed: set[int] = field(default_factory=set)  # trial ids


class IncrementalJournalStorage(JournalStorage):
    """Optuna journal storage whose list of trials is updated rather than built anew.

    Optuna's own visits all trials of a study at each ask, twice. As finished trials do not change,
    only new and changed ones are looked up here.
    """

    def __init__(self, journal: JournalFile) -> None:
        super().__init__(journal)
        self._journal = journal
        self._listings: dict[int, _Listing] = {}
        self._listings_lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Read the journal anew in the process that unpickles it."""
        return type(self), (self._journal,)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return a study's trials in some states, by number."""
        with self._listings_lock:
            listing = self._updated_listing(study_id)
            if states is None:
                trials = listing.trials.copy()
            elif any(state in states for state in _FINISHED):
                trials = [trial for trial in listing.trials if trial.state in states]
            else:
                unfinished = (listing.trials[number] for number in listing.unfinished.values())
                trials = [trial for trial in unfinished if trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def _updated_listing(self, study_id: int) -> _Listing:
        self.get_study_name_from_id(study_id)  # reads new entries, and refuses an unknown study
        self._listings.setdefault(study_id, _Listing())
        with suppress(IndexError):
            while True:  # another thread may be reading
                changed_id = self._journal.changed.popleft()
                for listing in self._listings.values():
                    listing.changed.add(changed_id)
        listing = self._listings[study_id]
        for trial_id in listing.unfinished.keys() & listing.changed:
            number = listing.unfinished[trial_id]
            trial = listing.trials[number] = self.get_trial(trial_id)
            if trial.state.is_finished():
                del listing.unfinished[trial_id]
        listing.changed.clear()
        while (new_id := self._id_of(study_id, len(listing.trials))) is not None:
            trial = self.get_trial(new_id)
            if not trial.state.is_finished():
                listing.unfinished[new_id] = len(listing.trials)
            listing.trials.append(trial)
        return listing

    def _id_of(self, study_id: int, number: int) -> int | None:
        try:
            return self.get_trial_id_from_study_id_trial_number(study_id, number)
        except KeyError:
            return None
