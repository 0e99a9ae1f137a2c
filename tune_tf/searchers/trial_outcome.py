"""Trial outcomes inferred from the last result, where no reason was recorded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tune_tf.outcome import STOP_CAUSE, Outcome, is_finite
from tune_tf.outcome_rules import divergence_cause, error_cause, infer_outcome, last_failure
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
        kept: Values of all objectives at the epoch that the trial keeps, if it is not the last.
    """

    outcome: Outcome
    value: float | None = None
    iteration: int | None = None
    cause: str | None = None
    others: tuple[float, ...] = ()
    kept: tuple[float, ...] = ()


def outcome_from_result(
    result: Mapping[str, Any] | None,
    criteria: SearchCriteria,
    *,
    last_seen: int | None,
    is_natural_end: Callable[[Mapping[str, Any]], bool],
) -> TrialOutcome:
    """Infer the outcome of a trial that did not fail from its last result, if it has one.

    Tune passes every result to a searcher except the one at which a trial is stopped. So a last
    result that was not seen is the one at which its limit or a scheduler stopped the trial; one
    that was seen and is marked done comes from a trainable that returned.

    Args:
        result: The trial's last result; None or empty if there is none.
        criteria: Objectives and constraints.
        last_seen: Iteration of the last result that the searcher saw; None if there was none.
        is_natural_end: Whether the trial was to end at a result anyway, rather than by a scheduler.
    """
    result = result or {}
    iteration = int(result[TRAINING_ITERATION]) if TRAINING_ITERATION in result else None
    recorded, values = Outcome.of_result(result), criteria.values(result)
    lead = result.get(criteria.leading.metric)
    finite: bool | None = values is not None
    if iteration is None and lead is None and not result.get("done"):
        finite = None
        end = Outcome.OUT_OF_BUDGET if last_seen is None else Outcome.PRUNED
    elif recorded is not None or not finite or iteration is None:
        end = Outcome.COMPLETED  # without an iteration it is the mean from a Repeater
    elif last_seen is None or iteration > last_seen:
        end = Outcome.COMPLETED if is_natural_end(result) else Outcome.PRUNED
    else:
        end = Outcome.COMPLETED if result.get("done") else Outcome.OUT_OF_BUDGET
    outcome = infer_outcome(end, recorded=recorded, finite=finite)
    cause = result.get(STOP_CAUSE)
    if outcome is Outcome.DIVERGED and recorded is not outcome:
        cause = divergence_cause(result, criteria.metrics, iteration)
    value = float(lead) if lead is not None and is_finite(lead) else None
    return TrialOutcome(outcome, value, iteration, cause, values[1:] if values else ())


def dropped_outcome(
    outcome: Outcome, values: tuple[float, ...], criteria: SearchCriteria
) -> TrialOutcome:
    """Return the outcome of a trial that Tune ended without notice, with its last known values."""
    if outcome is Outcome.COMPLETED and len(values) < len(criteria.objectives):
        return TrialOutcome(Outcome.DIVERGED, cause=f"{criteria.leading.metric} was not reported")
    return TrialOutcome(outcome, values[0] if values else None, others=values[1:])


def outcome_before_change(
    end: TrialOutcome, values: tuple[float, ...], changed_at: int | None
) -> TrialOutcome:
    """Return an outcome with the last known values of the trial's original config.

    ``changed_at`` is the last iteration with that config; None if it was not changed.
    """
    if changed_at is None or (end.iteration or 0) <= changed_at:
        return end
    if values:
        end = replace(end, value=values[0], others=values[1:])
    return replace(end, iteration=None)


def failed_outcome(trial_id: str) -> TrialOutcome:
    """Return the outcome of a trial that failed in Tune."""
    text = last_failure(controller.error_text(trial_id))
    cause = error_cause(text) or "the trial failed; see Tune's error file"
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
    if not stamped and not result and controller.is_complete_by_id(trial_id, last, stop_criteria):
        # paused at its limit
        end = outcome_from_result(last, criteria, last_seen=None, is_natural_end=lambda _: True)
    else:
        was_stopped = TRAINING_ITERATION in (result or {}) and not (result or {}).get("done")
        end = outcome_from_result(
            last if stamped else result,
            criteria,
            # A result that was the trial's last anyway may have been seen before a kill.
            last_seen=last_seen if was_stopped or record is None else record.seen,
            is_natural_end=lambda at: controller.would_complete(trial_id, at, stop_criteria),
        )
    return outcome_before_change(end, record.values if record else (), config_changed_at(last))
