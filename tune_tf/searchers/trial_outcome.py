"""Outcome of a trial that Tune has ended, inferred where no reason was recorded."""

from collections.abc import Mapping
from typing import Any

from tune_tf.outcome import STOP_CAUSE, Outcome
from tune_tf.outcome_rules import error_cause, last_failure
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.searchers.criteria import SearchCriteria
from tune_tf.tune_internals import controller


def failed_outcome(trial_id: str) -> tuple[Outcome, str | None]:
    """Return the outcome of a trial that failed in Tune, and its cause."""
    text = last_failure(controller.error_text(trial_id))
    return Outcome.of_error(text), error_cause(text) or "the trial failed; see Tune's error file"


def ended_outcome(
    trial_id: str,
    result: Mapping[str, Any] | None,
    last: Mapping[str, Any],
    criteria: SearchCriteria,
    last_seen: int | None,
    stop_criteria: Mapping[str, Any],
) -> tuple[Outcome, str | None]:
    """Infer the outcome of a trial that did not fail, and its cause.

    Tune passes every result to a searcher except the one at which a trial is stopped. So a last
    result that was not seen is the one at which its limit or a scheduler stopped the trial; one
    that was seen and is marked done comes from a trainable that returned. A trial that is said to
    be completed without finite values has diverged, which :class:`TrialProgress` finds.

    Args:
        trial_id: Tune's id of the trial.
        result: The last result as passed by Tune; None for a paused or pending trial.
        last: The last result, passed by Tune or not; empty if there is none.
        criteria: Objectives and constraints.
        last_seen: Iteration of the last result that the searcher saw; None if there was none.
        stop_criteria: The stop criteria that Tune passed to the searcher.
    """
    cause = last.get(STOP_CAUSE)
    if (recorded := Outcome.of_result(last)) is not None:
        return recorded, cause
    if not result:
        if controller.is_complete_by_id(trial_id, last, stop_criteria):  # paused at its limit
            return Outcome.COMPLETED, cause
        return (Outcome.OUT_OF_BUDGET if last_seen is None else Outcome.PRUNED), cause
    iteration = result.get(TRAINING_ITERATION)
    if iteration is None or criteria.values(result) is None:
        return Outcome.COMPLETED, cause  # without an iteration it is the mean from a Repeater
    if last_seen is None or iteration > last_seen:
        completed = controller.would_complete(trial_id, result, stop_criteria)
        return (Outcome.COMPLETED if completed else Outcome.PRUNED), cause
    return (Outcome.COMPLETED if result.get("done") else Outcome.OUT_OF_BUDGET), cause
