"""What a trial's last result says about its end, where nobody wrote the reason into it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tune_tf.outcome import STOP_CAUSE, Outcome, is_finite
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.objectives import SearchObjectives
from tune_tf.searchers.registry_state import TrialRecord
from tune_tf.searchers.trial_attrs import config_changed_at
from tune_tf.tune_internals import controller


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended.

    Args:
        outcome: The end.
        value: The leading metric at the end, if it is a finite number.
        iteration: When that was.
        cause: One sentence on why, where there is more to say.
        others: The other objectives' metrics at the end, in order; empty unless all are finite.
    """

    outcome: Outcome
    value: float | None = None
    iteration: int | None = None
    cause: str | None = None
    others: tuple[float, ...] = ()


def infer_outcome(
    result: Mapping[str, Any] | None,
    goals: SearchObjectives,
    *,
    last_seen: int | None,
    own_end: Callable[[Mapping[str, Any]], bool],
) -> TrialOutcome:
    """Return how a trial ended that did not fail.

    Tune shows a searcher every result but the one at which somebody stopped the trial. So a last
    result that was not shown was stopped at, by its own limit or by a scheduler; one that was shown
    and is marked done comes from a trainable that returned.

    Args:
        result: The trial's last result; None or empty if there is none.
        goals: The metrics.
        last_seen: Iteration of the last result that was shown; None if none was.
        own_end: Whether the trial was to end at a result anyway, by its limit or its own doing.
    """
    result = result or {}
    iteration = int(result[TRAINING_ITERATION]) if TRAINING_ITERATION in result else None
    values = goals.values(result)
    lead = result.get(goals.leading.metric)
    value = float(lead) if lead is not None and is_finite(lead) else None
    others = values[1:] if values else ()
    stamped = Outcome.of_result(result)
    cause = result.get(STOP_CAUSE)
    if stamped is not None and (values is not None or stamped is not Outcome.COMPLETED):
        return TrialOutcome(stamped, value, iteration, cause, others)
    if iteration is None and lead is None and not result.get("done"):
        return TrialOutcome(Outcome.OUT_OF_BUDGET if last_seen is None else Outcome.PRUNED)
    if values is None:
        return TrialOutcome(
            Outcome.DIVERGED, value, iteration, _not_finite(result, goals, iteration)
        )
    if iteration is None:  # no result of a trial's, but a mean, which Ray's Repeater tells
        outcome = Outcome.COMPLETED
    elif last_seen is None or iteration > last_seen:
        outcome = Outcome.COMPLETED if own_end(result) else Outcome.PRUNED
    else:
        outcome = Outcome.COMPLETED if result.get("done") else Outcome.OUT_OF_BUDGET
    return TrialOutcome(outcome, value, iteration, cause, others)


def dropped_outcome(
    outcome: Outcome, values: tuple[float, ...], goals: SearchObjectives
) -> TrialOutcome:
    """Return how a trial ended that Tune ended without a word.

    Args:
        outcome: The end.
        values: The objectives' values that were told last, as far as any were.
        goals: The metrics.
    """
    if outcome is Outcome.COMPLETED and len(values) < len(goals.objectives):
        return TrialOutcome(Outcome.DIVERGED, cause=f"{goals.leading.metric} was not told")
    return TrialOutcome(outcome, values[0] if values else None, others=values[1:])


def outcome_before_change(
    verdict: TrialOutcome, values: tuple[float, ...], changed_at: int | None
) -> TrialOutcome:
    """Return the end of a trial with values that are due to its own config.

    Args:
        verdict: The end.
        values: The objectives' last values with the trial's own config, as far as any are known.
        changed_at: The last iteration with that config; None if there was no other.
    """
    if changed_at is None or (verdict.iteration or 0) <= changed_at:
        return verdict
    if values:
        verdict = replace(verdict, value=values[0], others=values[1:])
    return replace(verdict, iteration=None)


def failed_outcome(trial_id: str) -> TrialOutcome:
    """Return how a trial ended that Tune calls failed."""
    text = controller.error_text(trial_id)
    cause = controller.last_line(text) or "the trial failed; Tune keeps its error file"
    return TrialOutcome(Outcome.of_error(text), cause=cause)


def ended_outcome(
    trial_id: str,
    result: Mapping[str, Any] | None,
    last: Mapping[str, Any],
    goals: SearchObjectives,
    entry: TrialRecord | None,
    shown: int | None,
    told: Mapping[str, Any],
) -> TrialOutcome:
    """Return how a trial ended that did not fail, with the values of its own config.

    Args:
        trial_id: Tune's id of the trial.
        result: The last result, as Tune hands it over; None of a trial that was paused or waited.
        last: The last result, whether Tune hands it over or not; empty if there is none.
        goals: The metrics.
        entry: What is known of the trial.
        shown: Iteration of the last result that was shown; None if none was.
        told: The stop criteria that Tune told the searcher.
    """
    stamped = Outcome.of_result(last) is not None
    if not stamped and not result and controller.at_limit(trial_id, last, told):
        # It was paused at its very end.
        verdict = infer_outcome(last, goals, last_seen=None, own_end=lambda _: True)
    else:
        was_stopped = TRAINING_ITERATION in (result or {}) and not (result or {}).get("done")
        verdict = infer_outcome(
            last if stamped else result,
            goals,
            # One that was the trial's last by design may have been shown before a kill, too.
            last_seen=shown if was_stopped or entry is None else entry.seen,
            own_end=lambda at: controller.own_end(trial_id, at, told),
        )
    return outcome_before_change(verdict, entry.values if entry else (), config_changed_at(last))


def _not_finite(result: Mapping[str, Any], goals: SearchObjectives, iteration: int | None) -> str:
    """Return the text that says which metrics are no finite numbers."""
    wrong = [
        f"{metric} {f'is {result[metric]}' if metric in result else 'is not reported'}"
        for metric in (each.metric for each in goals.objectives)
        if metric not in result or not is_finite(result[metric])
    ]
    at = "" if iteration is None else f" at iteration {iteration}"
    return f"{' and '.join(wrong)}{at}"
