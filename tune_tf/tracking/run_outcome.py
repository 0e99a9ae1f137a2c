"""Pure functions that infer the outcome of a trial from its results and Tune's hooks."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from tune_tf.outcome import Outcome, is_finite

Ending = Literal["completed", "stopped", "unfinished"]
"""How Tune ended a trial: with a hook, without a hook, or not before the end of the sweep."""

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FAILURE = re.compile(r"^Failure # \d+ \(occurred at .*\)$", re.MULTILINE)
_CAUSE_LINES = 3
_CAUSE_LENGTH = 500
_FAILURES = frozenset({Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR})


def infer_result_outcome(
    result: Mapping[str, Any], *, own_end: bool, metrics: Collection[str] = ()
) -> Outcome:
    """Infer the outcome of a trial from its last result.

    Args:
        result: The result.
        own_end: Whether the trial ended by itself rather than being stopped.
        metrics: A trial has diverged if one of these is not finite.
    """
    stamped = Outcome.of_result(result)
    if stamped is not None:
        return stamped
    if not all(is_finite(result.get(metric, 0.0)) for metric in metrics):
        return Outcome.DIVERGED
    return Outcome.COMPLETED if own_end else Outcome.PRUNED


def infer_trial_outcome(
    ending: Ending,
    last_result: Mapping[str, Any],
    *,
    status: str,
    own_end: bool,
    error: str | None = None,
    metrics: Collection[str] = (),
) -> Outcome:
    """Infer the outcome of a trial that Tune no longer runs.

    Args:
        ending: How Tune ended the trial.
        last_result: Last result of the trial; empty if it never reported.
        status: Tune's status of the trial.
        own_end: Whether the trial ended by itself.
        error: Text of the trial's error, if it failed.
        metrics: A trial has diverged if one of these is not finite.
    """
    if error is not None or status == "ERROR":
        return Outcome.of_error(last_failure(error or ""))
    if ending == "unfinished":
        return Outcome.INTERRUPTED  # regardless of its result: a resume continues it
    if last_result.get("done"):  # no stop reason: a function trainable returned
        return infer_result_outcome(last_result, own_end=True, metrics=metrics)
    if ending == "stopped":
        return Outcome.OUT_OF_BUDGET
    # Only schedulers stop a trial between two results.
    return infer_result_outcome(last_result, own_end=own_end) if last_result else Outcome.PRUNED


def sweep_status(outcomes: Collection[Outcome], *, interrupted: bool) -> str:
    """Return the parent run's MLflow status; ``interrupted`` if some trials have not ended."""
    if interrupted or Outcome.INTERRUPTED in outcomes:
        return "KILLED"
    return "FAILED" if outcomes and _FAILURES.issuperset(outcomes) else "FINISHED"


def error_cause(error: str) -> str:
    """Return the last lines of an error's text, without terminal colors."""
    lines = [line.strip() for line in strip_colors(error).splitlines() if line.strip(" ^~")]
    return "\n".join(lines[-_CAUSE_LINES:])[-_CAUSE_LENGTH:]


def last_failure(error: str) -> str:
    """Return the last failure in an error's text, to which Tune appends each failure."""
    return _FAILURE.split(error)[-1]


def strip_colors(error: str) -> str:
    """Remove terminal colors."""
    return _COLOR.sub("", error)
