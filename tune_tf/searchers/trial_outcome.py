"""Trial outcomes inferred from the last result, where no reason was recorded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tune_tf.outcome import STOP_CAUSE, Outcome, is_finite
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.searchers.registry_state import TrialRecord
from tune_tf.searchers.trial_attrs import config_changed_at
from tune_tf.tune_internals import controller


@dataclass(frozen=True)
class TrialOutcome:
    """Outcome of a trial with its final values.

    Args:
        outcome: The outcome.
        value: The leading metric's final value, if it is finite.
        iteration: Iteration of that value.
        cause: One sentence that explains the outcome, where there is more to say.
        others: Final values of the other objectives, in order; empty unless all are finite.
    """

    outcome: Outcome
    value: float | None = None
    iteration: int | None = None
    cause: str | None = None
    others: tuple[float, ...] = ()


def infer_outcome(
    result: Mapping[str, Any] | None,
    criteria: SearchCriteria,
    *,
    last_seen: int | None,
    own_end: Callable[[Mapping[str, Any]], bool],
) -> TrialOutcome:
    """Infer the outcome of a trial that did not fail.

    Tune passes every result to a searcher except the one at which a trial is stopped. So a last
    result that was not seen is the one at which its limit or a scheduler stopped the trial; one
    that was seen and is marked done comes from a trainable that returned.

    Args:
        result: The trial's last result; None or empty if there is none.
        criteria: Objectives and constraints.
        last_seen: Iteration of the last result that the searcher saw; None if there was none.
        own_end: Returns whether the trial was to end at a result anyway, rather than by a
            scheduler.
    """
    result = result or {}
    iteration = int(result[TRAINING_ITERATION]) if TRAINING_ITERATION in result else None
    values = criteria.values(result)
    lead = result.get(criteria.leading.metric)
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
            Outcome.DIVERGED, value, iteration, _not_finite(result, criteria, iteration)
        )
    if iteration is None:  # not a trial's result, but the mean from a Repeater
        outcome = Outcome.COMPLETED
    elif last_seen is None or iteration > last_seen:
        outcome = Outcome.COMPLETED if own_end(result) else Outcome.PRUNED
    else:
        outcome = Outcome.COMPLETED if result.get("done") else Outcome.OUT_OF_BUDGET
    return TrialOutcome(outcome, value, iteration, cause, others)


def dropped_outcome(
    outcome: Outcome, values: tuple[float, ...], criteria: SearchCriteria
) -> TrialOutcome:
    """Return the outcome of a trial that Tune ended without notifying the searcher.

    Args:
        outcome: The outcome.
        values: The objectives' last reported values, as far as they are known.
        criteria: Objectives and constraints.
    """
    if outcome is Outcome.COMPLETED and len(values) < len(criteria.objectives):
        return TrialOutcome(Outcome.DIVERGED, cause=f"{criteria.leading.metric} was not reported")
    return TrialOutcome(outcome, values[0] if values else None, others=values[1:])


def outcome_before_change(
    end: TrialOutcome, values: tuple[float, ...], changed_at: int | None
) -> TrialOutcome:
    """Return an outcome with the values of the trial's original config.

    Args:
        end: The outcome.
        values: The objectives' last values with the original config, as far as they are known.
        changed_at: The last iteration with that config; None if it was not changed.
    """
    if changed_at is None or (end.iteration or 0) <= changed_at:
        return end
    if values:
        end = replace(end, value=values[0], others=values[1:])
    return replace(end, iteration=None)


def failed_outcome(trial_id: str) -> TrialOutcome:
    """Return the outcome of a trial that failed in Tune."""
    text = controller.error_text(trial_id)
    cause = controller.last_line(text) or "the trial failed; see Tune's error file"
    return TrialOutcome(Outcome.of_error(text), cause=cause)


def ended_outcome(
    trial_id: str,
    result: Mapping[str, Any] | None,
    last: Mapping[str, Any],
    criteria: SearchCriteria,
    record: TrialRecord | None,
    last_seen: int | None,
    stop_criteria: Mapping[str, Any],
) -> TrialOutcome:
    """Infer the outcome of a trial that did not fail, with the values of its original config.

    Args:
        trial_id: Tune's id of the trial.
        result: The last result as passed by Tune; None for a paused or pending trial.
        last: The last result, passed by Tune or not; empty if there is none.
        criteria: Objectives and constraints.
        record: The trial's registry entry.
        last_seen: Iteration of the last result that the searcher saw; None if there was none.
        stop_criteria: The stop criteria that Tune passed to the searcher.
    """
    stamped = Outcome.of_result(last) is not None
    if not stamped and not result and controller.at_limit(trial_id, last, stop_criteria):
        # paused at its limit
        end = infer_outcome(last, criteria, last_seen=None, own_end=lambda _: True)
    else:
        was_stopped = TRAINING_ITERATION in (result or {}) and not (result or {}).get("done")
        end = infer_outcome(
            last if stamped else result,
            criteria,
            # A result that was the trial's last anyway may have been seen before a kill.
            last_seen=last_seen if was_stopped or record is None else record.seen,
            own_end=lambda at: controller.reaches_own_end(trial_id, at, stop_criteria),
        )
    return outcome_before_change(end, record.values if record else (), config_changed_at(last))


def _not_finite(result: Mapping[str, Any], criteria: SearchCriteria, iteration: int | None) -> str:
    """Return a text that names the metrics without a finite value."""
    wrong = [
        f"{metric} {f'is {result[metric]}' if metric in result else 'is not reported'}"
        for metric in (each.metric for each in criteria.objectives)
        if metric not in result or not is_finite(result[metric])
    ]
    at = "" if iteration is None else f" at iteration {iteration}"
    return f"{' and '.join(wrong)}{at}"
