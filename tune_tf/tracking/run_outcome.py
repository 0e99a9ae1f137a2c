"""How a trial ended, from what Ray Tune lets a callback see. Pure: no framework is loaded."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from tune_tf.outcome import Outcome, is_finite

Seen = Literal["completed", "stopped", "unfinished"]
"""What Tune did: called ``on_trial_complete``; stopped the trial without a word while the sweep
went on; or left it unfinished when the sweep ended."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FAILURE = re.compile(r"^Failure # \d+ \(occurred at .*\)$", re.MULTILINE)
_CAUSE_LINES = 3
_CAUSE_LENGTH = 500
_FAILURES = frozenset({Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR})


def outcome_of_result(
    result: Mapping[str, Any], *, own_end: bool, metrics: Collection[str] = ()
) -> Outcome:
    """Return how the trial ended whose last result this is.

    Args:
        result: The result.
        own_end: Whether the trial ran as far as it was to, rather than being stopped.
        metrics: Those that tell that a trial diverged.
    """
    stamped = Outcome.of_result(result)
    if stamped is not None:
        return stamped
    if not all(is_finite(result.get(metric, 0.0)) for metric in metrics):
        return Outcome.DIVERGED
    return Outcome.COMPLETED if own_end else Outcome.PRUNED


def outcome_of_trial(
    seen: Seen,
    last_result: Mapping[str, Any],
    *,
    status: str,
    own_end: bool,
    error: str | None = None,
    metrics: Collection[str] = (),
) -> Outcome:
    """Return how a trial ended, once Tune is through with it.

    Args:
        seen: What Tune did with the trial.
        last_result: What the trial reported last; empty if it never did.
        status: Tune's status of the trial.
        own_end: Whether the trial ran as far as it was to.
        error: Text of the trial's error, if it failed.
        metrics: Those that tell that a trial diverged.
    """
    if error is not None or status == "ERROR":
        return Outcome.of_error(last_failure(error or ""))
    if seen == "unfinished":
        return Outcome.INTERRUPTED  # whatever it reported: a resume goes on with it
    if last_result.get("done"):  # where it is not stamped, a function has returned
        return outcome_of_result(last_result, own_end=True, metrics=metrics)
    if seen == "stopped":
        return Outcome.OUT_OF_BUDGET
    # Only schedulers stop a trial between two results.
    return outcome_of_result(last_result, own_end=own_end) if last_result else Outcome.PRUNED


def outcome_of_sweep(outcomes: Collection[Outcome], *, interrupted: bool) -> str:
    """Return the parent run's MLflow status.

    Args:
        outcomes: How the trials ended.
        interrupted: Whether trials were left that have not ended.
    """
    if interrupted or Outcome.INTERRUPTED in outcomes:
        return "KILLED"
    return "FAILED" if outcomes and _FAILURES.issuperset(outcomes) else "FINISHED"


def cause_of(error: str) -> str:
    """Return the last lines of an error's text, without colours: what a reader wants to see."""
    lines = [line.strip() for line in plain(error).splitlines() if line.strip(" ^~")]
    return "\n".join(lines[-_CAUSE_LINES:])[-_CAUSE_LENGTH:]


def last_failure(error: str) -> str:
    """Return what an error's text tells of the last failure: Tune adds one to another."""
    return _FAILURE.split(error)[-1]


def plain(error: str) -> str:
    """Return an error's text without the terminal's colours."""
    return _COLOUR.sub("", error)
