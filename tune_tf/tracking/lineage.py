"""Config changes and clones of running trials, as in population based training.

Ray calls no hook when a trial is cloned: it then restarts from a checkpoint in another's folder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial

from tune_tf.space import flatten
from tune_tf.tracking.names import (
    EXPLOITS,
    MAX_TAG_LENGTH,
    is_metric_value,
    mlflow_key,
    truncate,
)
from tune_tf.tune_internals.trial_state import trial_folder

CLONED_FROM_TAG = "tune_tf.cloned_from"


@dataclass
class _TrialHistory:
    """Clones and config changes of a trial."""

    config: Mapping[str, Any]
    exploits: int = 0  # copies of another trial's weights
    checkpoint: str | None = None  # the one last copied
    changed: dict[str, Any] = field(default_factory=dict)  # config values, since the last report


class Lineage:
    """Clones and config changes of all trials of a sweep.

    ``state`` is that before an interruption, empty for a new sweep.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._trials: dict[str, _TrialHistory] = dict(state.get("trials", {}))

    def state(self) -> dict[str, Any]:
        """Return the state for a resumed sweep, which Tune pickles at once."""
        return {"trials": self._trials}

    def record_start(self, trial: Trial, trials: Iterable[Trial]) -> dict[str, str]:
        """Record the start of a trial; return the tags of its run if it was cloned."""
        history = self._trials.setdefault(trial.trial_id, _TrialHistory(trial.config))
        changed = _changed_values(history.config, trial.config)
        history.config = trial.config
        history.changed.update(changed)
        if trial.checkpoint is None:
            return {}
        path = trial.checkpoint.path
        source = _owner(path, trial, trials)
        # A cloned trial may restart again before it writes a checkpoint: that is no new clone.
        if source is None or (path == history.checkpoint and not changed):
            return {}
        history.checkpoint = path
        history.exploits += 1
        return {CLONED_FROM_TAG: source.trial_id}

    def add_to_report(self, trial_id: str, metrics: dict[str, float]) -> dict[str, str]:
        """Add changed numbers, as ``hp/<name>``, and the number of clones to a report's metrics.

        Returns:
            Tags with changed values that are not numbers.
        """
        history = self._trials.get(trial_id)
        if history is None or not (history.exploits or history.changed):
            return {}
        reported = dict(metrics)
        metrics.clear()  # the reported ones come last: a step with the last one is complete
        if history.exploits:
            metrics[EXPLOITS] = float(history.exploits)
        tags: dict[str, str] = {}
        for name, value in history.changed.items():
            key = mlflow_key(f"hp/{name}")
            if is_metric_value(value):
                metrics[key] = float(value)
            else:
                tags[key] = truncate(str(value), MAX_TAG_LENGTH)
        metrics.update(reported)
        history.changed.clear()
        return tags

    def forget(self, trial_id: str) -> None:
        """Drop a finally ended trial."""
        self._trials.pop(trial_id, None)


def _owner(checkpoint: str, trial: Trial, trials: Iterable[Trial]) -> Trial | None:
    """Return the other trial in whose folder a checkpoint lies; None without one."""
    folder = str(Path(checkpoint).parent)
    others = (other for other in trials if other is not trial)
    return next((other for other in others if trial_folder(other) == folder), None)


def _changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a config that differ from an older one's."""
    if old is new:
        return {}
    before = flatten(old)
    return {
        name: value for name, value in flatten(new).items() if str(value) != str(before.get(name))
    }
