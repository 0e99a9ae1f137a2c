"""Which trial goes on from which, and with what config, as in population based training.

Ray's schedulers give a trial another one's checkpoint and a config of its own, and tell no one. It
shows when the trial starts again: its checkpoint then lies in the other trial's folder.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION

from tune_tf.tracking.names import EXPLOITS, MAX_TAG_LENGTH, cut, flat, is_metric_value, key_of
from tune_tf.tracking.writing.run_update import Report

CLONED_FROM = "tune_tf.cloned_from"
CLONED_AT = "tune_tf.cloned_at"
LINEAGE_FILE = "lineage.json"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Clone:
    """A trial that took up another one's weights.

    Args:
        trial: Tune's id of the trial.
        source: Tune's id of the trial whose weights it took up.
        iteration: Last iteration of the trial with its own weights.
        source_iteration: Iteration of the weights that it took up; None if that is not known.
        time_ms: When it went on with them, in milliseconds since the epoch.
        before: What of its config it gave up, flat.
        after: What it took in its place, flat.
    """

    trial: str
    source: str
    iteration: int
    source_iteration: int | None
    time_ms: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the trial; those of its last change stand."""
        return {CLONED_FROM: self.source, CLONED_AT: str(self.iteration)}


@dataclass
class _Line:
    """What a trial has gone through.

    Args:
        config: What it trains with.
        exploits: How often it took up another trial's weights.
        checkpoint: Where the last of them lay.
        first: Step and time of its first report.
        step: Step of its last report.
        changed: Values that it trains with from the next report on.
        before: What they were when it started.
        curves: Parameters that have a curve already.
    """

    config: Mapping[str, Any]
    exploits: int = 0
    checkpoint: str | None = None
    first: tuple[int, int] | None = None
    step: int = 0
    changed: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    curves: set[str] = field(default_factory=set)


class Lineage:
    """What trials of a sweep have taken from each other, and how their configs changed.

    Args:
        state: What :meth:`state` returned before an interruption.
    """

    def __init__(self, state: Mapping[str, Any] = _NOTHING) -> None:
        self.clones: list[Clone] = [Clone(**each) for each in state.get("clones", ())]
        self._lines = {trial_id: _Line(**line) for trial_id, line in state.get("lines", {}).items()}

    def state(self) -> dict[str, Any]:
        """Return what a resumed sweep needs, as plain data of its own."""
        lines = {
            trial_id: {
                **vars(line),
                "changed": dict(line.changed),
                "before": dict(line.before),
                "curves": set(line.curves),
            }
            for trial_id, line in self._lines.items()
        }
        return {"clones": [vars(clone) for clone in self.clones], "lines": lines}

    def started(self, trial: Trial, trials: Iterable[Trial], time_ms: int) -> Clone | None:
        """Take note of a trial that starts or goes on; return whom it was cloned from, if it was.

        Args:
            trial: The trial.
            trials: All trials of the sweep.
            time_ms: Milliseconds since the epoch.
        """
        line = self._lines.setdefault(trial.trial_id, _Line(trial.config))
        before, after = _difference(line.config, trial.config)
        line.config = trial.config
        line.changed.update(after)
        for name in before.keys() & after.keys():
            line.before.setdefault(name, before[name])
        checkpoint = trial.checkpoint
        source = _owner(checkpoint.path, trial, trials) if checkpoint is not None else None
        # A trial that starts again before it has a checkpoint of its own is not cloned again.
        if (
            checkpoint is None
            or source is None
            or (checkpoint.path == line.checkpoint and not after)
        ):
            return None
        line.checkpoint = checkpoint.path
        line.exploits += 1
        result = trial.latest_checkpoint_result
        clone = Clone(
            trial.trial_id,
            source.trial_id,
            line.step,
            ((result and result.metrics) or {}).get(TRAINING_ITERATION),
            time_ms,
            before,
            after,
        )
        self.clones.append(clone)
        return clone

    def reported(
        self, trial_id: str, step: int, time_ms: int, metrics: dict[str, float]
    ) -> tuple[list[Report], dict[str, str]]:
        """Add to a report's metrics what it is due to.

        Args:
            trial_id: Tune's id of the trial.
            step: The iteration.
            time_ms: Milliseconds since the epoch.
            metrics: Gets changed numbers as ``hp/<name>``, and how often the trial was cloned.

        Returns:
            Reports that come before it, which begin the curves of numbers at their first value,
            and tags with changed values that are not numbers.
        """
        line = self._lines.get(trial_id)
        if line is None:
            return [], {}
        if line.first is None:
            line.first = step, time_ms
        line.step = step
        if not line.exploits and not line.changed:
            return [], {}
        own = dict(metrics)
        metrics.clear()  # what is the trial's own comes last: a step that has its end has all
        if line.exploits:
            metrics[EXPLOITS] = float(line.exploits)
        initial: dict[str, float] = {}
        tags: dict[str, str] = {}
        for name, value in line.changed.items():
            key = key_of(f"hp/{name}")
            if not is_metric_value(value):
                tags[key] = cut(str(value), MAX_TAG_LENGTH)
                continue
            metrics[key] = float(value)
            if key not in line.curves and is_metric_value(line.before.get(name)):
                initial[key] = float(line.before[name])
            line.curves.add(key)
        metrics.update(own)
        line.changed.clear()
        line.before.clear()
        before = [Report(*line.first, initial, once=False)] if initial else []
        return before if line.first < (step, time_ms) else [], tags

    def ended(self, trial_id: str) -> None:
        """Forget a trial that has ended for good."""
        self._lines.pop(trial_id, None)

    def as_json(self) -> str:
        """Return all clones in the order they were made, as people and programs read it."""
        clones = [
            {**asdict(clone), "time": datetime.fromtimestamp(clone.time_ms / 1000, UTC).isoformat()}
            for clone in self.clones
        ]
        return json.dumps(clones, indent=2, default=str) + "\n"


def _owner(checkpoint: str, trial: Trial, trials: Iterable[Trial]) -> Trial | None:
    """Return the other trial in whose folder a checkpoint lies; None if there is none."""
    folder = str(Path(checkpoint).parent)
    if folder == trial.path:
        return None
    return next((other for other in trials if other is not trial and other.path == folder), None)


def _difference(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the leaves that differ, as they were and as they are."""
    if old is new:
        return {}, {}
    before, after = dict(flat(old)), dict(flat(new))
    return (
        {name: value for name, value in before.items() if not _same(value, after.get(name))},
        {name: value for name, value in after.items() if not _same(value, before.get(name))},
    )


def _same(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays of several elements
        return str(one) == str(other)
