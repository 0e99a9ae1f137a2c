"""What an epoch's metrics mean for its trial."""

import math
from collections.abc import Mapping
from typing import Any

from ray.tune.result import DONE

from tune_tf.outcome import STOP_CAUSE, STOP_REASON, Outcome

DEVICES = "devices"
"""Key of a result that holds, as text, what the iteration was trained on."""


def epoch_result(
    metrics: Mapping[str, Any], *, iteration: int, stop_training: bool, devices: str
) -> dict[str, Any]:
    """Return the result to report to Tune, which tells the trial's own end and why.

    Args:
        metrics: By name; per-class arrays stay inside the trial, Tune takes numbers.
        iteration: The iteration's number, from 1.
        stop_training: Whether a callback asked to end the trial.
        devices: What it was trained on.
    """
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    result: dict[str, Any] = numbers | {DEVICES: devices}
    if not math.isfinite(result.get("loss", 0.0)):
        cause = f"loss is {result['loss']} at iteration {iteration}"
        return result | {DONE: True, STOP_REASON: Outcome.DIVERGED.value, STOP_CAUSE: cause}
    if stop_training:
        return result | {DONE: True, STOP_REASON: Outcome.COMPLETED.value}
    return result
