"""What a study knows of a trial by its results: one rule for a running sweep and for a replay."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import TrialState

from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.outcome_rules import divergence_cause
from tune_tf.ranking import kept_result
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.trial_attrs import attrs_from_result, config_changed_at


@dataclass(frozen=True)
class EndInStudy:
    """End of a trial as Optuna stores it.

    Args:
        state: Optuna's state.
        values: The objectives' values of a trial that is COMPLETE.
        attrs: User attributes that explain and link it.
        violations: By how much each constraint is violated, by its text.
    """

    state: TrialState
    values: list[float] | None
    attrs: dict[str, Any]
    violations: dict[str, float]


@dataclass
class TrialProgress:
    """Results of a trial so far, as far as they belong to the config that it was started with.

    Attributes:
        curve: The leading objective's finite values by iteration.
        values: The objectives' last finite values, or that of the leading one.
        last: The last result, flat; empty before the first.
        changed_at: The last iteration with the trial's own config; None if it has not changed.
    """

    curve: dict[int, float] = field(default_factory=dict)
    values: tuple[float, ...] = ()
    last: Mapping[str, Any] = field(default_factory=dict)
    changed_at: int | None = None

    @property
    def iteration(self) -> int | None:
        """Number of the last result; None before the first."""
        iteration = self.last.get(TRAINING_ITERATION)
        return None if iteration is None else int(iteration)

    def add(self, result: Mapping[str, Any], criteria: SearchCriteria) -> bool:
        """Add a flat result; return whether the curve has grown.

        An iteration that a restarted trial repeats is left as it is.
        """
        if TRAINING_ITERATION not in result:  # a function returned without reporting, or a mean
            return False
        self.last, iteration = result, int(result[TRAINING_ITERATION])
        if self.changed_at is None:
            self.changed_at = config_changed_at(result)
        lead = result.get(criteria.leading.metric)
        is_own = self.changed_at is None or iteration <= self.changed_at
        if not is_own or not is_finite(lead) or iteration <= max(self.curve, default=-1):
            return False
        self.values = criteria.values(result) or (float(lead),)  # type: ignore[arg-type]
        self.curve[iteration] = self.values[0]
        return True

    def end(
        self,
        outcome: Outcome,
        cause: str | None,
        criteria: SearchCriteria,
        mean: Mapping[str, Any] | None = None,
    ) -> EndInStudy:
        """Return the end of a trial with an outcome other than ``INTERRUPTED``.

        ``mean`` is the result of a trial that stands for several, as under Ray's ``Repeater``.
        """
        last = {**self.last, **(mean or {})}
        kept = kept_result(last) if self.changed_at is None else last
        values = None
        if outcome is Outcome.COMPLETED:
            if not (values := criteria.values(last)):
                outcome = Outcome.DIVERGED
            elif self.changed_at is None:
                values = criteria.values(kept) or values
            elif len(self.values) == len(values):
                values = self.values
        if outcome is Outcome.DIVERGED and not cause:
            cause = divergence_cause(last, criteria.metrics, self.iteration)
        state = TrialState[outcome.optuna]
        if state is TrialState.PRUNED and not self.curve:
            # Without a value Optuna's samplers would rank it among the worst.
            state, cause = TrialState.FAIL, cause or "stopped before its first result"
        attrs = attrs_from_result(kept) | {STOP_REASON: outcome.value}
        if cause or state is TrialState.FAIL:
            attrs[STOP_CAUSE] = cause or outcome.value
        if self.changed_at is not None:
            attrs[CONFIG_CHANGED_AT] = self.changed_at
        violations = {} if state is TrialState.FAIL else criteria.violations(kept)
        return EndInStudy(state, list(values) if values else None, attrs, violations)
