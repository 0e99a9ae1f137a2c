"""Optuna storage that filters the trials a sampler sees."""

import copy
from collections.abc import Callable, Container, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT
from tune_tf.searchers.storage.overlay import StudyForwarding
from tune_tf.searchers.storage.visibility import (
    IntermediateValues,
    RungValues,
    Visibility,
    values_at,
)

RungSource = Callable[[], Sequence[int]]
"""Returns the iterations at which the scheduler compares trials by now, ascending."""


def no_rungs() -> Sequence[int]:
    """Return no rungs, for schedulers that do not compare trials."""
    return ()


class FilteredStorage(StudyForwarding):
    """Optuna storage whose list of trials follows a visibility rule.

    For the study that is asked and told. ``get_all_trials``, which samplers read, applies the rule;
    every other method goes to the underlying storage.

    Finished trials are processed only once, so a call costs about as much as one on the underlying
    storage.

    Args:
        storage: The study's storage.
        rungs: Returns the scheduler's rungs, which may change during the sweep.
        visibility: The rule; rung values by default.
    """

    def __init__(
        self,
        storage: BaseStorage,
        rungs: RungSource = no_rungs,
        visibility: Visibility | None = None,
    ) -> None:
        # Optuna caches a bare database, but would not find one wrapped in here.
        super().__init__(optuna.storages.get_storage(storage))
        self._rungs = rungs
        self._visibility = visibility or RungValues()
        self._views: dict[int, _View] = {}
        self._study_ids: set[int] = set()

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the visible form of all trials, by number."""
        if states == (TrialState.WAITING,):  # read at each ask, and fast in all storages
            return self._storage.get_all_trials(study_id, deepcopy, states)
        rungs = tuple(self._rungs()) if self._visibility.needs_rungs else ()
        trials = self._storage.get_all_trials(study_id, deepcopy=False)
        view = self._views.get(study_id)
        if view is None or view.rungs != rungs or len(view.visible) > len(trials):
            view = self._views[study_id] = _View(self._visibility, rungs)
        view.update(trials)
        visible = view.visible
        chosen = list(visible) if states is None else [t for t in visible if t.state in states]
        return copy.deepcopy(chosen) if deepcopy else chosen

    def delete_study(self, study_id: int) -> None:
        """Pass on."""
        self._views.pop(study_id, None)
        self._storage.delete_study(study_id)

    def get_study_id_from_name(self, study_name: str) -> int:
        """Pass on."""
        study_id = self._storage.get_study_id_from_name(study_name)
        self._study_ids.add(study_id)
        return study_id

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Pass on."""
        return self._storage.create_new_trial(study_id, template_trial)

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        """Pass on."""
        drawn = (trial_id, param_name, param_value_internal, distribution)
        try:
            self._storage.set_trial_param(*drawn)
        except KeyError:
            # Optuna's database cache rejects parameters of an earlier process's trial until all
            # trials have been read, which not every sampler does.
            for study_id in self._study_ids:
                self._storage.get_all_trials(study_id, deepcopy=False)
            self._storage.set_trial_param(*drawn)

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """Pass on."""
        return self._storage.get_trial_id_from_study_id_trial_number(study_id, trial_number)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Pass on."""
        return self._storage.set_trial_state_values(trial_id, state, values)

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """Pass on."""
        self._storage.set_trial_intermediate_value(trial_id, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Pass on."""
        self._storage.set_trial_user_attr(trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Pass on."""
        self._storage.set_trial_system_attr(trial_id, key, value)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial as stored."""
        return self._storage.get_trial(trial_id)

    def get_n_trials(
        self, study_id: int, state: tuple[TrialState, ...] | TrialState | None = None
    ) -> int:
        """Return the number of stored trials in the given states."""
        return self._storage.get_n_trials(study_id, state)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the best trial stored as COMPLETE."""
        return self._storage.get_best_trial(study_id)

    def remove_session(self) -> None:
        """Pass on."""
        self._storage.remove_session()


class _View:
    """Visible trials of one study, updated incrementally.

    Args:
        visibility: The visibility rule.
        rungs: The rungs that it uses.
    """

    def __init__(self, visibility: Visibility, rungs: tuple[int, ...]) -> None:
        self.rungs = rungs
        self.visible: list[FrozenTrial] = []
        self._visibility = visibility
        self._level: int | None = None
        self._num_at = dict.fromkeys(rungs, 0)
        self._trials: list[FrozenTrial] = []
        self._at: list[IntermediateValues | None] = []
        self._unfinished: dict[int, object] = {}

    def update(self, trials: list[FrozenTrial]) -> None:
        """Update the visible trials."""
        changed = [
            index
            for index, mark in self._unfinished.items()
            if trials[index] is not self._trials[index] or _fingerprint(trials[index]) != mark
        ]
        new = range(len(self.visible), len(trials))
        self._at.extend(None for _ in new)
        self.visible.extend(trials[new.start :])
        self._trials = trials
        changed.extend(new)
        for index in changed:
            self._count(index, trials[index])
        level = self._visibility.level(self._num_at)
        if level != self._level:
            self._level, changed = level, list(range(len(trials)))
        for index in changed:
            self.visible[index] = self._visibility.apply(trials[index], self._at[index], level)

    def _count(self, index: int, trial: FrozenTrial) -> None:
        """Record which rungs a trial has reached, and whether it has finished."""
        if trial.state.is_finished():
            self._unfinished.pop(index, None)
        else:
            self._unfinished[index] = _fingerprint(trial)
        if not self.rungs:
            return
        for rung in self._at[index] or ():
            self._num_at[rung] -= 1
        self._at[index] = at = values_at(_known_curve(trial), self.rungs)
        for rung in at:
            self._num_at[rung] += 1


def _known_curve(trial: FrozenTrial) -> IntermediateValues:
    """Return a trial's curve up to a change of its config."""
    changed_at = trial.user_attrs.get(CONFIG_CHANGED_AT)
    if trial.state in (TrialState.FAIL, TrialState.WAITING):
        return {}
    if changed_at is None:
        return trial.intermediate_values
    return {step: value for step, value in trial.intermediate_values.items() if step <= changed_at}


def _fingerprint(trial: FrozenTrial) -> object:
    """Return a value that changes with a trial, for storages that modify trials in place."""
    changed_at = trial.user_attrs.get(CONFIG_CHANGED_AT)
    return trial.state, len(trial.params), len(trial.intermediate_values), changed_at
