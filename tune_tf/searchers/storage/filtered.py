"""The storage that a sampler looks into."""

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
    """Return no rungs, for schedulers that compare no trials."""
    return ()


class FilteredStorage(StudyForwarding):
    """A storage whose list of trials is what a sampler is to see; all else is the truth.

    Give it to the study that is asked and told. ``get_all_trials``, which is where samplers look,
    shows trials by a rule; every other method goes to the storage itself. Whoever wants the true
    list asks the storage underneath.

    A trial is looked at again only if it had not ended the time before, so a look costs about what
    it costs the storage itself.

    Args:
        storage: Where the study is kept.
        rungs: The scheduler's rungs; they may change while the sweep goes on.
        rule: What is shown.
    """

    def __init__(
        self, storage: BaseStorage, rungs: RungSource = no_rungs, rule: Visibility | None = None
    ) -> None:
        # A study puts Optuna's cache around a bare database; it would not see one in here.
        super().__init__(optuna.storages.get_storage(storage))
        self._rungs = rungs
        self._rule = rule or RungValues()
        self._views: dict[int, _View] = {}
        self._study_ids: set[int] = set()

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return what is shown of all trials, by number."""
        if states == (TrialState.WAITING,):  # each ask looks for these, and storages are quick
            return self._truth.get_all_trials(study_id, deepcopy, states)
        rungs = tuple(self._rungs()) if self._rule.needs_rungs else ()
        trials = self._truth.get_all_trials(study_id, deepcopy=False)
        view = self._views.get(study_id)
        if view is None or view.rungs != rungs or len(view.shown) > len(trials):
            view = self._views[study_id] = _View(self._rule, rungs)
        view.look(trials)
        shown = view.shown
        chosen = list(shown) if states is None else [t for t in shown if t.state in states]
        return copy.deepcopy(chosen) if deepcopy else chosen

    def delete_study(self, study_id: int) -> None:
        """Pass on."""
        self._views.pop(study_id, None)
        self._truth.delete_study(study_id)

    def get_study_id_from_name(self, study_name: str) -> int:
        """Pass on."""
        study_id = self._truth.get_study_id_from_name(study_name)
        self._study_ids.add(study_id)
        return study_id

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Pass on."""
        return self._truth.create_new_trial(study_id, template_trial)

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
            self._truth.set_trial_param(*drawn)
        except KeyError:
            # Optuna's cache of a database takes no parameter of a trial that an earlier process
            # asked for before it has read the trials, and not every sampler has them read.
            for study_id in self._study_ids:
                self._truth.get_all_trials(study_id, deepcopy=False)
            self._truth.set_trial_param(*drawn)

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """Pass on."""
        return self._truth.get_trial_id_from_study_id_trial_number(study_id, trial_number)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Pass on."""
        return self._truth.set_trial_state_values(trial_id, state, values)

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """Pass on."""
        self._truth.set_trial_intermediate_value(trial_id, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Pass on."""
        self._truth.set_trial_user_attr(trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Pass on."""
        self._truth.set_trial_system_attr(trial_id, key, value)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial as it is stored."""
        return self._truth.get_trial(trial_id)

    def get_n_trials(
        self, study_id: int, state: tuple[TrialState, ...] | TrialState | None = None
    ) -> int:
        """Return how many trials are stored, of those states."""
        return self._truth.get_n_trials(study_id, state)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the best trial that is stored as COMPLETE."""
        return self._truth.get_best_trial(study_id)

    def remove_session(self) -> None:
        """Pass on."""
        self._truth.remove_session()


class _View:
    """What is shown of one study's trials, kept from look to look.

    Args:
        rule: What is shown.
        rungs: The rungs by which it is shown.
    """

    def __init__(self, rule: Visibility, rungs: tuple[int, ...]) -> None:
        self.rungs = rungs
        self.shown: list[FrozenTrial] = []
        self._rule = rule
        self._level: int | None = None
        self._num_at = dict.fromkeys(rungs, 0)
        self._trials: list[FrozenTrial] = []
        self._at: list[IntermediateValues | None] = []
        self._unfinished: dict[int, object] = {}

    def look(self, trials: list[FrozenTrial]) -> None:
        """Bring what is shown up to date."""
        changed = [
            index
            for index, mark in self._unfinished.items()
            if trials[index] is not self._trials[index] or _mark(trials[index]) != mark
        ]
        new = range(len(self.shown), len(trials))
        self._at.extend(None for _ in new)
        self.shown.extend(trials[new.start :])
        self._trials = trials
        changed.extend(new)
        for index in changed:
            self._count(index, trials[index])
        level = self._rule.level(self._num_at)
        if level != self._level:
            self._level, changed = level, list(range(len(trials)))
        for index in changed:
            self.shown[index] = self._rule.show(trials[index], self._at[index], level)

    def _count(self, index: int, trial: FrozenTrial) -> None:
        """Note what rungs a trial has reached, and whether it has ended."""
        if trial.state.is_finished():
            self._unfinished.pop(index, None)
        else:
            self._unfinished[index] = _mark(trial)
        if not self.rungs:
            return
        for rung in self._at[index] or ():
            self._num_at[rung] -= 1
        self._at[index] = at = values_at(_known_curve(trial), self.rungs)
        for rung in at:
            self._num_at[rung] += 1


def _known_curve(trial: FrozenTrial) -> IntermediateValues:
    """Return a trial's curve as long as it had the parameters that Optuna knows."""
    changed_at = trial.user_attrs.get(CONFIG_CHANGED_AT)
    if trial.state in (TrialState.FAIL, TrialState.WAITING):
        return {}
    if changed_at is None:
        return trial.intermediate_values
    return {step: value for step, value in trial.intermediate_values.items() if step <= changed_at}


def _mark(trial: FrozenTrial) -> object:
    """Return what tells a trial from itself later, where a storage changes it in place."""
    changed_at = trial.user_attrs.get(CONFIG_CHANGED_AT)
    return trial.state, len(trial.params), len(trial.intermediate_values), changed_at
