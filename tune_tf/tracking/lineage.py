"""Lineage of trials cloned from each other, as in population based training.

Ray calls no hook when a trial is cloned: it then restarts from a checkpoint in another's folder.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION

from tune_tf.space import flatten
from tune_tf.tracking.names import (
    EXPLOITS,
    MAX_TAG_LENGTH,
    is_metric_value,
    mlflow_key,
    truncate,
)
from tune_tf.tracking.writing.run_update import Report
from tune_tf.tune_internals.trial_state import trial_folder

LINEAGE_FILE = "lineage.json"


@dataclass(frozen=True)
class Clone:
    """Copy of another trial's weights into a trial.

    ``before`` and ``after`` are the flat config values that changed.
    """

    trial: str
    source: str
    iteration: int  # the last one before the copy
    source_iteration: int | None  # of the copied weights; None if unknown
    time_ms: int  # of the trial's restart, since the epoch
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the trial's run."""
        return {"tune_tf.cloned_from": self.source, "tune_tf.cloned_at": str(self.iteration)}


@dataclass
class _TrialHistory:
    """Clones and config changes of a trial."""

    config: Mapping[str, Any]
    exploits: int = 0  # copies of another trial's weights
    checkpoint: str | None = None  # the one last copied
    first: tuple[int, int] | None = None  # step and time of the first report
    step: int = 0  # of the last report
    changed: dict[str, Any] = field(default_factory=dict)  # config values, since the last report
    before: dict[str, Any] = field(default_factory=dict)  # the same values before the change
    curves: set[str] = field(default_factory=set)  # parameters that have a curve


class Lineage:
    """Clones and config changes of all trials of a sweep.

    ``state`` is that before an interruption, empty for a new sweep.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.clones: list[Clone] = list(state.get("clones", ()))
        self._trials: dict[str, _TrialHistory] = dict(state.get("trials", {}))

    def state(self) -> dict[str, Any]:
        """Return the state for a resumed sweep, which Tune pickles at once."""
        return {"clones": self.clones, "trials": self._trials}

    def record_start(self, trial: Trial, trials: Iterable[Trial], time_ms: int) -> Clone | None:
        """Record the start of a trial; return its :class:`Clone` if it was cloned."""
        history = self._trials.setdefault(trial.trial_id, _TrialHistory(trial.config))
        before, after = _difference(history.config, trial.config)
        history.config = trial.config
        history.changed.update(after)
        for name in before.keys() & after.keys():
            history.before.setdefault(name, before[name])
        if trial.checkpoint is None:
            return None
        path = trial.checkpoint.path
        source = _owner(path, trial, trials)
        # A cloned trial may restart again before it writes a checkpoint: that is no new clone.
        if source is None or (path == history.checkpoint and not after):
            return None
        history.checkpoint = path
        history.exploits += 1
        result = trial.latest_checkpoint_result
        clone = Clone(
            trial.trial_id,
            source.trial_id,
            history.step,
            ((result and result.metrics) or {}).get(TRAINING_ITERATION),
            time_ms,
            before,
            after,
        )
        self.clones.append(clone)
        return clone

    def add_to_report(
        self, trial_id: str, step: int, time_ms: int, metrics: dict[str, float]
    ) -> tuple[list[Report], dict[str, str]]:
        """Add changed numbers, as ``hp/<name>``, and the number of clones to a report's metrics.

        Returns:
            Reports to log first, with the initial values of the curves, and tags with changed
            values that are not numbers.
        """
        history = self._trials.get(trial_id)
        if history is None:
            return [], {}
        if history.first is None:
            history.first = step, time_ms
        history.step = step
        if not history.exploits and not history.changed:
            return [], {}
        reported = dict(metrics)
        metrics.clear()  # the reported ones come last: a step with the last one is complete
        if history.exploits:
            metrics[EXPLOITS] = float(history.exploits)
        initial: dict[str, float] = {}
        tags: dict[str, str] = {}
        for name, value in history.changed.items():
            key = mlflow_key(f"hp/{name}")
            if not is_metric_value(value):
                tags[key] = truncate(str(value), MAX_TAG_LENGTH)
                continue
            metrics[key] = float(value)
            if key not in history.curves and is_metric_value(history.before.get(name)):
                initial[key] = float(history.before[name])
            history.curves.add(key)
        metrics.update(reported)
        history.changed.clear()
        history.before.clear()
        before = [Report(*history.first, initial, once=False)] if initial else []
        return before if history.first < (step, time_ms) else [], tags

    def forget(self, trial_id: str) -> None:
        """Drop a finally ended trial."""
        self._trials.pop(trial_id, None)

    def to_json(self) -> str:
        """Return all clones as JSON, in order."""
        clones = [
            {**asdict(clone), "time": datetime.fromtimestamp(clone.time_ms / 1000, UTC).isoformat()}
            for clone in self.clones
        ]
        return json.dumps(clones, indent=2, default=str) + "\n"


def _owner(checkpoint: str, trial: Trial, trials: Iterable[Trial]) -> Trial | None:
    """Return the other trial in whose folder a checkpoint lies; None without one."""
    folder = str(Path(checkpoint).parent)
    others = (other for other in trials if other is not trial)
    return next((other for other in others if trial_folder(other) == folder), None)


def _difference(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the leaves that differ, before and after."""
    if old is new:
        return {}, {}
    before, after = flatten(old), flatten(new)
    return (
        {name: value for name, value in before.items() if not _is_same(value, after.get(name))},
        {name: value for name, value in after.items() if not _is_same(value, before.get(name))},
    )


def _is_same(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays of several elements
        return str(one) == str(other)
