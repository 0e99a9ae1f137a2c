"""View of a running sweep's study: a copy in a storage that others read, such as a dashboard."""

import logging
import threading
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from ray.tune import Callback

from tune_tf.errors import SweepConflictError, TuneTfError
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.study_storage import open_storage, open_study, storage_label
from tune_tf.searchers.trial_attrs import TUNE_TRIAL_ID, WARM_START, WARM_START_KEY

_log = logging.getLogger(__name__)


@dataclass
class _Copy:
    """A trial in the storage: its id there, and what was copied."""

    trial_id: int
    trial: FrozenTrial


class StudyView(Callback):
    """Tune callback that copies a study in memory to a storage, by a thread.

    It is also the context manager in which Tune runs. A storage that is away is tried again: it
    lacks what is new until then. Trials are matched by Tune's id, so a sweep that goes on continues
    its copy.

    Args:
        study: The study in memory.
        criteria: Its objectives.
        storage: A database URL, or a journal file as Optuna writes it.
        study_name: The name of the copy.
        period_s: Time between two copies, in seconds.
        patience_s: How long the end of the sweep waits for the last copy, in seconds.

    Raises:
        InvalidSettingsError: The storage cannot be opened.
        SweepConflictError: It has a study of that name with trials of another sweep, or with other
            directions.
    """

    def __init__(
        self,
        study: optuna.Study,
        criteria: SearchCriteria,
        storage: str,
        study_name: str,
        *,
        period_s: float = 2.0,
        patience_s: float = 60.0,
    ) -> None:
        self._study, self._criteria = study, criteria
        self._location, self._study_name = storage, study_name
        self._period_s, self._patience_s = period_s, patience_s
        self._trials = self._known_trials()
        self._closed, self._given_up = threading.Event(), False
        self._storage: BaseStorage | None = None
        self._study_id = 0
        self._copies: dict[Hashable, _Copy] = {}
        self._open()
        self._refuse_other_sweep()
        self._thread = threading.Thread(target=self._run, name="study-view", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def on_step_end(self, **info: Any) -> None:
        """Have the thread copy what the study knows by now, which a kill does not undo any more.

        The trials of a study in memory are replaced, not changed, so their list does not change.
        """
        self._trials = self._known_trials()

    def __exit__(self, error: object, *others: object) -> None:
        """Copy the rest, unless there was an error; warn if the storage stays away."""
        if error is None:
            self._trials = self._known_trials()
        self._closed.set()
        self._thread.join(self._patience_s)
        if self._thread.is_alive():
            self._given_up = True
            _log.warning(
                "the study %r in %s lacks the last results: resume the sweep to copy them",
                self._study_name,
                storage_label(self._location),
            )

    def _known_trials(self) -> Sequence[FrozenTrial]:
        trials = self._study.get_trials(deepcopy=False)
        return [trial for trial in trials if trial.state is not TrialState.WAITING]

    def _run(self) -> None:
        """Copy what is new every few seconds, at the end until it succeeds."""
        is_behind = False
        while not self._given_up:
            is_last = self._closed.wait(self._period_s)
            try:
                self._copy_new(self._storage or self._open(), self._trials)
            except _errors() as error:
                if not is_behind:
                    _log.warning(
                        "the study in %s is behind, and is tried again: %s",
                        storage_label(self._location),
                        str(error).partition("\n")[0],
                    )
                is_behind, self._storage = True, None
                time.sleep(self._period_s)
            else:
                is_behind = False
                if is_last:
                    return

    def _open(self) -> BaseStorage:
        """Open the storage, and read what it has."""
        storage = open_storage(self._location)
        study = open_study(storage, self._study_name, self._criteria)
        self._study_id = storage.get_study_id_from_name(study.study_name)
        trials = storage.get_all_trials(self._study_id, deepcopy=False)
        self._copies = {_key(each): _Copy(each._trial_id, each) for each in trials}  # noqa: SLF001
        self._storage = storage
        return storage

    def _refuse_other_sweep(self) -> None:
        if self._copies and not self._copies.keys() & {_key(trial) for trial in self._trials}:
            raise SweepConflictError(
                f"study {self._study_name!r} in {storage_label(self._location)} has trials of "
                "another sweep: set another searcher.study_name; searcher.warm_start_from takes "
                "earlier results"
            )

    def _copy_new(self, storage: BaseStorage, trials: Sequence[FrozenTrial]) -> None:
        for trial in trials:
            copy = self._copies.get(_key(trial))
            if copy is None:
                trial_id = storage.create_new_trial(self._study_id, template_trial=trial)
                self._copies[_key(trial)] = _Copy(trial_id, trial)
            elif copy.trial is not trial:
                if not copy.trial.state.is_finished():
                    _update(storage, copy, trial)
                copy.trial = trial


def _update(storage: BaseStorage, copy: _Copy, trial: FrozenTrial) -> None:
    """Copy what a running trial has got since it was copied last."""
    trial_id, before = copy.trial_id, copy.trial
    with suppress(UpdateFinishedTrialError):  # somebody else has ended it
        for step in trial.intermediate_values.keys() - before.intermediate_values.keys():
            storage.set_trial_intermediate_value(trial_id, step, trial.intermediate_values[step])
        for name, attr in trial.user_attrs.items():
            if before.user_attrs.get(name) != attr:
                storage.set_trial_user_attr(trial_id, name, attr)
        for name in trial.system_attrs.keys() - before.system_attrs.keys():
            storage.set_trial_system_attr(trial_id, name, trial.system_attrs[name])
        if trial.state.is_finished():
            storage.set_trial_state_values(trial_id, trial.state, trial.values)


def _key(trial: FrozenTrial) -> Hashable:
    """Return what a trial is known by in any copy of the study."""
    attrs = trial.user_attrs
    return attrs.get(TUNE_TRIAL_ID), attrs.get(WARM_START), attrs.get(WARM_START_KEY)


def _errors() -> tuple[type[Exception], ...]:
    """Return what a storage raises that is away for a while, or was removed."""
    from sqlalchemy.exc import SQLAlchemyError  # late: only databases need it

    return SQLAlchemyError, StorageInternalError, OSError, KeyError, ValueError, TuneTfError
