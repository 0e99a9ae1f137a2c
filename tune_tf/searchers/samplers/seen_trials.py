"""What a sampler sees of a study: the values of trials at the rungs of a scheduler."""

import copy
import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT

RungSource = Callable[[], Sequence[int]]
"""Returns the iterations at which the scheduler compares trials by now, ascending."""


class SeenTrials:
    """Storage for TPE, whose trials have values at rungs only, running ones included.

    Optuna's TPE learns from a trial's state and curve. Under a scheduler that stops trials, both
    are misleading: a loss after 1 epoch stands beside a loss after 27, and running trials, among
    them the good ones, count as bad. So stopped trials are PRUNED with their values at rungs, and
    running ones PRUNED at the last rung that they reached. Without known rungs, trials are shown as
    stored, but up to a change of their config. With several objectives TPE cannot rank by curves
    and raises, so that there are none. All else is passed to the storage of the study.

    Measured in virtual time with ASHA and 4 workers: 11 of 20 sweeps of 1,200 epochs found one of
    the best 0.1 % of configs, 5 of 20 with trials as stored (four problems, five seeds); epochs to
    the best 0.1 % relative to reporting stopped trials as COMPLETE: 0.51 (five problems).

    Args:
        storage: The storage of the study.
        rungs: Returns the rungs, which may change during the sweep.
        num_objectives: Number of objectives.
    """

    def __init__(self, storage: BaseStorage, rungs: RungSource, num_objectives: int = 1) -> None:
        self._storage, self._rungs, self._num_objectives = storage, rungs, num_objectives
        self._seen: dict[int, FrozenTrial] = {}  # ended trials, by number
        self._seen_at: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the study's storage."""
        return getattr(self.__dict__["_storage"], name)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the visible form of all trials of the study, by number."""
        if states == (TrialState.WAITING,):  # Optuna looks for points to try first
            return self._storage.get_all_trials(study_id, deepcopy, states)
        if (rungs := tuple(self._rungs())) != self._seen_at:
            self._seen_at, self._seen = rungs, {}
        seen = []
        for trial in self._storage.get_all_trials(study_id, deepcopy=False):
            visible = self._seen.get(trial.number) or self._visible(trial, rungs)
            if trial.state.is_finished():  # and thus immutable
                self._seen[trial.number] = visible
            if states is None or visible.state in states:
                seen.append(visible)
        return copy.deepcopy(seen) if deepcopy else seen

    def _visible(self, trial: FrozenTrial, rungs: Sequence[int]) -> FrozenTrial:
        if trial.state in (TrialState.WAITING, TrialState.FAIL):
            return trial
        changed_at = trial.user_attrs.get(CONFIG_CHANGED_AT, math.inf)
        if trial.state is TrialState.COMPLETE and changed_at == math.inf:
            return trial
        curve = {
            step: value
            for step, value in trial.intermediate_values.items()
            if step <= changed_at and math.isfinite(value)
        }
        if changed_at != math.inf and not curve:
            return _changed(trial, TrialState.FAIL, {})
        if rungs and changed_at == math.inf:
            curve = values_at_rungs(curve, rungs)
        if trial.state is TrialState.RUNNING and not (rungs and curve) and changed_at == math.inf:
            return trial
        return _changed(trial, TrialState.PRUNED, curve if self._num_objectives == 1 else {})


def values_at_rungs(curve: Mapping[int, float], rungs: Sequence[int]) -> dict[int, float]:
    """Return a curve's value at each rung that it reached.

    Args:
        curve: Value by iteration.
        rungs: Iterations, ascending. As in Ray's ASHA, a trial that reports less often has at a
            rung its first value at or after it and before the next rung.
    """
    values: dict[int, float] = {}
    for rung, next_rung in zip(rungs, [*rungs[1:], math.inf], strict=True):
        first = min((step for step in curve if rung <= step < next_rung), default=None)
        if first is not None:
            values[rung] = curve[first]
    return values


def _changed(trial: FrozenTrial, state: TrialState, curve: Mapping[int, float]) -> FrozenTrial:
    """Return a copy of a trial with another state and curve."""
    visible = copy.copy(trial)
    visible.state = state
    visible.intermediate_values = dict(curve)
    visible.values = [curve[max(curve)]] if curve else None
    return visible
