"""Tune result of an epoch."""

from collections.abc import Mapping
from typing import Any

from ray.tune.result import DONE

from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.outcome_rules import divergence_cause, infer_outcome

DEVICES = "devices"
"""Result key of the devices that trained the iteration, as text."""


def epoch_result(
    metrics: Mapping[str, Any], *, iteration: int, stop_training: bool, devices: str
) -> dict[str, Any]:
    """Return the Tune result of an epoch, marked as done if the trial diverged or stopped itself.

    Only numbers among the metrics are kept, as Tune requires; per-class arrays are dropped.
    """
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    result: dict[str, Any] = numbers | {DEVICES: devices}
    outcome = infer_outcome(
        Outcome.COMPLETED if stop_training else None, finite=is_finite(result.get("loss", 0.0))
    )
    if outcome is None:
        return result
    if outcome is Outcome.DIVERGED:
        result[STOP_CAUSE] = divergence_cause(result, ["loss"], iteration)
    return result | {DONE: True, STOP_REASON: outcome.value}
