"""Tune result of an epoch."""

import math
from collections.abc import Mapping
from typing import Any

from ray.tune.result import DONE

from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome

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
    if not math.isfinite(result.get("loss", 0.0)):
        cause = f"loss is {result['loss']} at iteration {iteration}"
        return result | {DONE: True, STOP_REASON: Outcome.DIVERGED.value, STOP_CAUSE: cause}
    if stop_training:
        return result | {DONE: True, STOP_REASON: Outcome.COMPLETED.value}
    return result
