"""Checkpoints in the form of Tune's saved state."""

from collections.abc import Mapping
from typing import Any

from ray.tune import Checkpoint


def registered_checkpoint(path: str, filesystem: Any, metrics: Mapping[str, Any]) -> Any:
    """Return a checkpoint as Tune's own state registers it, with the metrics of its iteration."""
    from ray.train._internal.session import _TrainingResult

    return _TrainingResult(Checkpoint(path, filesystem), dict(metrics))
