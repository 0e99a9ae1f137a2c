"""Visibility rules: which parts of a trial a sampler sees.

Optuna's samplers learn from a trial's state and curve. Under a scheduler that stops trials, both
are misleading: a loss after 1 epoch stands beside a loss after 27, and nothing is known of running
trials, among them the good ones. So samplers see trials at rungs, the iterations at which the
scheduler compares them.

Measured in virtual time with stopping ASHA, epochs to the best-0.1% configuration relative to
reporting stopped trials as COMPLETE: 0.54 with 1 worker, 0.51 with 4 and 0.53 with 16 for
:class:`RungValues` with univariate TPE, over five problems and 20 to 30 seeds.
"""

import abc
import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from optuna.trial import FrozenTrial, TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT

IntermediateValues = Mapping[int, float]


class Visibility(abc.ABC):
    """Rule that decides what a sampler sees of a trial."""

    needs_rungs: ClassVar[bool] = False

    def level(self, values_at: Iterable[IntermediateValues | None]) -> Any:
        """Return what the visible form of a trial depends on besides the trial itself.

        ``values_at`` holds each trial's values at rungs.
        """
        return None

    @abc.abstractmethod
    def apply(self, trial: FrozenTrial, at: IntermediateValues | None, level: Any) -> FrozenTrial:
        """Return the visible form of a trial, which itself is not changed.

        Args:
            trial: The trial as stored, up to a change of its config.
            at: Its values at rungs; None if no rungs are known.
            level: Result of :meth:`level`.
        """


@dataclass(frozen=True)
class Unfiltered(Visibility):
    """Shows trials as stored, for samplers that do not learn.

    A trial whose config was changed is PRUNED with its values before the change.

    Args:
        constrained: Whether a finished trial without constraints is FAIL. Optuna's Gaussian
            processes raise unless all trials have the same constraints; results imported from an
            earlier sweep may have none.
    """

    constrained: bool = False

    def apply(self, trial: FrozenTrial, at: IntermediateValues | None, level: Any) -> FrozenTrial:
        """Return the trial as it is."""
        if self.constrained and trial.state is TrialState.COMPLETE and not trial.constraints:
            return _changed(trial, TrialState.FAIL, {}, None)
        return trial


UNFILTERED: Final = Unfiltered()


@dataclass(frozen=True)
class RungValues(Visibility):
    """Shows the values of trials at rungs, running ones included.

    Finished trials are COMPLETE, stopped ones PRUNED with their values at rungs, running ones
    PRUNED at their last rung, or RUNNING if they have not reached one. Without known rungs, trials
    are shown as stored.
    """

    needs_rungs: ClassVar[bool] = True

    def apply(self, trial: FrozenTrial, at: IntermediateValues | None, level: Any) -> FrozenTrial:
        """Return the trial with its values at rungs only."""
        if trial.state is TrialState.PRUNED:
            return _pruned(trial, finite_values(trial.intermediate_values) if at is None else at)
        if trial.state is TrialState.RUNNING and at:
            return _pruned(trial, at)
        return trial


@dataclass(frozen=True)
class HighestRung(Visibility):
    """Ranks trials by their values at the highest rung that enough trials have reached.

    Trials with a value there are COMPLETE with that value, all others RUNNING without values: with
    its constant liar, Optuna's TPE takes the best tenth of the COMPLETE ones as good, and the rest,
    RUNNING ones included, as bad. A trial that finished below that rung is COMPLETE with its last
    value, which is the one it would have there. Without known rungs this is ``RungValues``.

    Args:
        min_values: Number of values that a rung needs. While none has them, TPE stays random.
    """

    min_values: int = 10

    needs_rungs: ClassVar[bool] = True

    def level(self, values_at: Iterable[IntermediateValues | None]) -> int | None:
        """Return the highest rung with enough values."""
        counts = Counter(rung for values in values_at for rung in values or ())
        rungs = [rung for rung, count in counts.items() if count >= self.min_values]
        return max(rungs, default=None)

    def apply(self, trial: FrozenTrial, at: IntermediateValues | None, level: Any) -> FrozenTrial:
        """Return the trial as COMPLETE with its value at the rung, or as RUNNING."""
        if at is None:
            return RungValues().apply(trial, at, level)
        if trial.state in (TrialState.WAITING, TrialState.FAIL):
            return trial
        if level is not None and level in at:
            return _changed(trial, TrialState.COMPLETE, {}, at[level])
        if trial.state is TrialState.COMPLETE:
            return trial
        return _changed(trial, TrialState.RUNNING, {}, None)


@dataclass(frozen=True)
class PredictedValues(Visibility):
    """Shows stopped and running trials as COMPLETE with the values that they would end with.

    For samplers that learn from COMPLETE trials only. A trial's last value at a rung is changed by
    the median changes from rung to rung among the trials that reached both. Without known rungs,
    trials are shown as stored.

    Measured in virtual time with stopping ASHA and 4 workers, epochs to the best-0.1% configuration
    relative to full runs only: 0.91 for NSGA-II (twelve problems) and for CMA-ES (five), ten seeds
    each; Gaussian processes took 620 epochs in place of 2,700 on Branin.

    Args:
        min_pairs: Number of trials that must have reached a rung and the next one.
    """

    min_pairs: int = 3

    needs_rungs: ClassVar[bool] = True

    def level(self, values_at: Iterable[IntermediateValues | None]) -> dict[int, float]:
        """Return the change to the highest rung by rung, where there are enough trials."""
        changes = defaultdict(list)
        for values in values_at:
            for (low, before), (high, after) in itertools.pairwise((values or {}).items()):
                changes[low, high].append(after - before)
        left: dict[int, float] = {}
        for low, high in sorted(changes, reverse=True):
            if len(changes[low, high]) >= self.min_pairs:
                left[low] = statistics.median(changes[low, high]) + left.setdefault(high, 0.0)
        return left

    def apply(self, trial: FrozenTrial, at: IntermediateValues | None, level: Any) -> FrozenTrial:
        """Return the trial as COMPLETE if its last value can be predicted."""
        is_unfinished = trial.state in (TrialState.PRUNED, TrialState.RUNNING)
        last = max(at) if at and is_unfinished else None
        if at is None or last is None or last not in level:
            return trial
        return _changed(trial, TrialState.COMPLETE, {}, at[last] + level[last])


@dataclass(frozen=True)
class FinalValues(Visibility):
    """Hides curves: with several objectives Optuna's TPE cannot rank by them and raises."""

    def apply(self, trial: FrozenTrial, at: IntermediateValues | None, level: Any) -> FrozenTrial:
        """Return the trial without its curve."""
        return _pruned(trial, {}) if trial.state is TrialState.PRUNED else trial


def trial_before_change(trial: FrozenTrial) -> FrozenTrial:
    """Return a trial up to the iteration at which its config was changed, if it was.

    It becomes PRUNED, or FAIL if it has no finite value before the change.
    """
    changed_at = trial.user_attrs.get(CONFIG_CHANGED_AT)
    if changed_at is None:
        return trial
    curve = {step: value for step, value in trial.intermediate_values.items() if step <= changed_at}
    if finite_curve := finite_values(curve):
        return _pruned(trial, finite_curve)
    return _changed(trial, TrialState.FAIL, {}, None)


def finite_values(curve: IntermediateValues) -> IntermediateValues:
    """Return a curve without NaN and Inf; the same object if it has none."""
    if all(map(math.isfinite, curve.values())):
        return curve
    return {step: value for step, value in curve.items() if math.isfinite(value)}


def values_at_rungs(curve: IntermediateValues, rungs: Sequence[int]) -> dict[int, float]:
    """Return a curve's value at each rung that it reached.

    Args:
        curve: Value by iteration.
        rungs: Iterations, ascending. As in Ray's ASHA, a trial that reports less often has at a
            rung its first value at or after it and before the next rung.
    """
    values: dict[int, float] = {}
    curve = finite_values(curve)
    for rung, next_rung in zip(rungs, [*rungs[1:], math.inf], strict=True):
        first = min((step for step in curve if rung <= step < next_rung), default=None)
        if first is not None:
            values[rung] = curve[first]
    return values


def _pruned(trial: FrozenTrial, curve: IntermediateValues) -> FrozenTrial:
    if trial.state is TrialState.PRUNED and curve is trial.intermediate_values:
        return trial
    return _changed(trial, TrialState.PRUNED, curve, curve[max(curve)] if curve else None)


def _changed(
    trial: FrozenTrial, state: TrialState, curve: IntermediateValues, value: float | None
) -> FrozenTrial:
    """Return a copy of a trial with another state, curve and value."""
    visible = copy(trial)
    visible.state = state
    visible.intermediate_values = dict(curve)
    visible.values = None if value is None else [value]
    return visible
