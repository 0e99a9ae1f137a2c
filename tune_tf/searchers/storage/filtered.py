"""Optuna storage that filters the trials a sampler sees."""

import copy
from collections.abc import Callable, Container, Sequence
from typing import Any

from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT
from tune_tf.searchers.storage.overlay import ForwardingStorage
from tune_tf.searchers.storage.visibility import (
    IntermediateValues,
    RungValues,
    Visibility,
    trial_before_change,
    values_at_rungs,
)

RungSource = Callable[[], Sequence[int]]
"""Returns the iterations at which the scheduler compares trials by now, ascending."""


def no_rungs() -> Sequence[int]:
    """Return no rungs, for schedulers that do not compare trials."""
    return ()


_RUNG_VALUES = RungValues()


class FilteredStorage(ForwardingStorage):
    """Optuna storage whose list of trials follows a visibility rule.

    For the study on which ask and tell are called. ``get_all_trials``, which samplers read,
    applies the rule, to finished trials only once; every other method goes to the underlying
    storage. The scheduler's rungs may change during the sweep.
    """

    def __init__(
        self,
        storage: BaseStorage,
        rungs: RungSource = no_rungs,
        visibility: Visibility = _RUNG_VALUES,
    ) -> None:
        super().__init__(storage)
        self._rungs = rungs
        self._visibility = visibility
        self._views: dict[int, _View] = {}

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
        visible = view.visible.copy()
        if states is not None:
            visible = [each for each in visible if each.state in states]
        return copy.deepcopy(visible) if deepcopy else visible


class _View:
    """Visible trials of one study, updated incrementally."""

    def __init__(self, visibility: Visibility, rungs: tuple[int, ...]) -> None:
        self.rungs = rungs
        self.visible: list[FrozenTrial] = []
        self._visibility = visibility
        self._level: Any = None
        self._trials: list[FrozenTrial] = []
        self._values_at: list[IntermediateValues | None] = []
        self._unfinished: dict[int, object] = {}

    def update(self, trials: list[FrozenTrial]) -> None:
        """Update the visible trials."""
        changed = [
            index
            for index, mark in self._unfinished.items()
            if trials[index] is not self._trials[index] or _fingerprint(trials[index]) != mark
        ]
        new = range(len(self.visible), len(trials))
        self._values_at.extend(None for _ in new)
        self.visible.extend(trials[new.start :])
        self._trials = trials
        changed.extend(new)
        for index in changed:
            self._record(index, trials[index])
        level = self._visibility.level(self._values_at)
        if level != self._level:
            self._level, changed = level, list(range(len(trials)))
        for index in changed:
            trial = trial_before_change(trials[index])
            self.visible[index] = self._visibility.apply(trial, self._values_at[index], level)

    def _record(self, index: int, trial: FrozenTrial) -> None:
        """Record which rungs a trial has reached, and whether it has finished."""
        if trial.state.is_finished():
            self._unfinished.pop(index, None)
        else:
            self._unfinished[index] = _fingerprint(trial)
        if self.rungs:
            without_values = trial.state in (TrialState.FAIL, TrialState.WAITING)
            curve = {} if without_values else trial_before_change(trial).intermediate_values
            self._values_at[index] = values_at_rungs(curve, self.rungs)


def _fingerprint(trial: FrozenTrial) -> object:
    """Return a value that changes with a trial, for storages that modify trials in place."""
    changed_at = trial.user_attrs.get(CONFIG_CHANGED_AT)
    return trial.state, len(trial.params), len(trial.intermediate_values), changed_at
