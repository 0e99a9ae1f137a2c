"""What a trial's last result says about its end, where nobody wrote the reason into it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tune_tf.objective import Objective
from tune_tf.outcome import STOP_CAUSE, Outcome, is_finite

TIME: Final = "training_iteration"
"""The result's key that counts a trial's results."""


@dataclass(frozen=True)
class Verdict:
    """How a trial ended.

    Args:
        outcome: The end.
        value: The metric at the end, if it is a finite number.
        iteration: When that was.
        cause: One sentence on why, where there is more to say.
    """

    outcome: Outcome
    value: float | None = None
    iteration: int | None = None
    cause: str | None = None


def judge(
    result: Mapping[str, Any] | None,
    objective: Objective,
    *,
    last_seen: int | None,
    own_end: Callable[[Mapping[str, Any]], bool],
) -> Verdict:
    """Return how a trial ended that did not fail.

    Tune shows a searcher every result but the one at which somebody stopped the trial. So a last
    result that was not shown was stopped at, by its own limit or by a scheduler; one that was shown
    and is marked done comes from a trainable that returned.

    Args:
        result: The trial's last result; None or empty if there is none.
        objective: The metric.
        last_seen: Iteration of the last result that was shown; None if none was.
        own_end: Whether the trial was to end at a result anyway, by its limit or its own doing.
    """
    result = result or {}
    metric = result.get(objective.metric)
    iteration = int(result[TIME]) if TIME in result else None
    value = float(metric) if metric is not None and is_finite(metric) else None
    stamped = Outcome.of_result(result)
    cause = result.get(STOP_CAUSE)
    if stamped is not None and (value is not None or stamped is not Outcome.COMPLETED):
        return Verdict(stamped, value, iteration, cause)
    if iteration is None and not result.get("done"):
        return Verdict(Outcome.OUT_OF_BUDGET if last_seen is None else Outcome.PRUNED)
    if value is None:
        what = f"is {metric}" if objective.metric in result else "is not reported"
        cause = f"{objective.metric} {what} at iteration {iteration or 0}"
        return Verdict(Outcome.DIVERGED, None, iteration, cause)
    if last_seen is None or (iteration or 0) > last_seen:
        outcome = Outcome.COMPLETED if own_end(result) else Outcome.PRUNED
    else:
        outcome = Outcome.COMPLETED if result.get("done") else Outcome.OUT_OF_BUDGET
    return Verdict(outcome, value, iteration, cause)
