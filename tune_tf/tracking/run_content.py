"""What a run has to have in MLflow, as the record tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ray.tune.result import HOSTNAME, NODE_IP

from tune_tf.constraint import is_feasible
from tune_tf.errors import strip_colors
from tune_tf.outcome import Outcome
from tune_tf.ranking import kept_iteration, kept_result
from tune_tf.record import RecordedResult, RecordedTrial
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.space import flatten
from tune_tf.tracking.names import (
    EXPLOITS,
    MAX_TAG_LENGTH,
    is_metric_value,
    mlflow_key,
    mlflow_metrics,
    mlflow_params,
    truncate,
)
from tune_tf.tracking.tags import (
    CLONED_FROM_TAG,
    DEVICES_TAG,
    FEASIBLE_TAG,
    NODE_TAG,
    RUNG_TAG,
    STOP_CAUSE_TAG,
    STOP_REASON_TAG,
    TRIAL_NAME_TAG,
    TRIAL_NUMBER_TAG,
)
from tune_tf.tracking.tracked_sweep import TrackedSweep

RUNNING = "RUNNING"
"""MLflow's status of a run that has not ended."""


class Point(NamedTuple):
    """Metrics of a run at one step; equal ones are one in MLflow however often they are sent."""

    step: int  # epoch of a trial; of the sweep's own run the number of ended trials
    time_ms: int
    metrics: Mapping[str, float]


@dataclass
class RunContent:
    """What a run has to have in MLflow; times are milliseconds since 1970.

    Args:
        name: Name of the run.
        start_ms: Start; None for the time at which it is made.
        params: Parameters; those of a run cannot change.
        tags: Tags.
        points: Points that it may lack.
        tests: Points with metrics on the test rows.
        texts: Artifacts, as texts by path.
        files: Artifacts, as local files by path, each of the same name.
        status: MLflow's status.
        end_ms: End of an ended run; None if it is not known.
    """

    name: str
    start_ms: int | None = None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: Sequence[Point] = ()
    tests: Sequence[Point] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    status: str = RUNNING
    end_ms: int | None = None


@dataclass(frozen=True)
class Curve:
    """Where the points of a trial's results end that MLflow has.

    Args:
        config: The trial's config at that result, flat.
        num_results: Number of results up to there.
        epoch: Highest number of copies of other trials' weights and epoch among them.
        tags: Config values that are no numbers and that a scheduler has changed.
        last: The trial's last result when they were read.
    """

    config: Mapping[str, Any]
    num_results: int = 0
    epoch: tuple[int, int] = (0, -1)
    tags: Mapping[str, str] = field(default_factory=dict)
    last: Mapping[str, Any] | None = None

    def extended(
        self, results: Sequence[RecordedResult], last: Mapping[str, Any]
    ) -> tuple["Curve", list[Point]]:
        """Return the curve with further results, and their points.

        An epoch that was repeated after a restart has no second point. After a copy of another
        trial's weights, a trial may report an epoch again with another value.
        """
        config, epoch, tags = self.config, self.epoch, dict(self.tags)
        points: list[Point] = []
        for result in results:
            changed: dict[str, float] = {}
            if result.config is not None:
                before, config = config, flatten(result.config)
                for name in (name for name in config if config[name] != before.get(name)):
                    if is_metric_value(config[name]):
                        changed[mlflow_key(f"hp/{name}")] = float(config[name])
                    else:
                        text = truncate(str(config[name]), MAX_TAG_LENGTH)
                        tags[mlflow_key(f"hp/{name}")] = text
            step = int(result.metrics.get(TRAINING_ITERATION, 0))
            if (result.exploits, step) > epoch:
                epoch = result.exploits, step
                copies = {EXPLOITS: float(result.exploits)} if result.exploits else {}
                metrics = {**copies, **changed, **mlflow_metrics(result.metrics)}
                points.append(Point(step, milliseconds(result.time_s), metrics))
        return Curve(config, self.num_results + len(results), epoch, tags, last), points


def trial_content(trial: RecordedTrial, sweep: TrackedSweep, outcome: Outcome | None) -> RunContent:
    """Return what the run of a trial has to have, without what its :class:`Curve` tells.

    ``outcome`` is how the trial has ended; None if it has not.
    """
    tags = {
        TRIAL_NAME_TAG: trial.name,
        TRIAL_NUMBER_TAG: str(trial.number),
        DEVICES_TAG: trial.devices,
        NODE_TAG: _node_name(trial.last),
        CLONED_FROM_TAG: trial.cloned_from,
    }
    if outcome is not None:
        tags |= {STOP_REASON_TAG: outcome.value, STOP_CAUSE_TAG: trial.cause}
        tags |= _end_tags(end_result(trial), sweep)
    error = trial.error if outcome in (Outcome.ERROR, Outcome.OOM) else None
    return RunContent(
        name=trial.name,
        start_ms=None if trial.started_s is None else milliseconds(trial.started_s),
        params=mlflow_params(trial.suggested),
        tags={name: truncate(text, MAX_TAG_LENGTH) for name, text in tags.items() if text},
        texts={"error.txt": strip_colors(error)} if error else {},
        status=RUNNING if outcome is None else outcome.mlflow,
        end_ms=None if trial.ended_s is None else milliseconds(trial.ended_s),
    )


def test_points(trial: RecordedTrial) -> list[Point]:
    """Return the metrics of a trial's model on the test rows, if there are any."""
    if not trial.test_metrics:
        return []
    metrics = mlflow_metrics(trial.test_metrics)
    return [Point(kept_iteration(trial.last), milliseconds(trial.tested_s), metrics)]


def milliseconds(seconds: float) -> int:
    """Return a time since 1970 as MLflow has it."""
    return int(seconds * 1000)


def end_result(trial: RecordedTrial) -> dict[str, Any]:
    """Return the flat result that an ended trial keeps."""
    return kept_result({**trial.last, **mlflow_metrics(trial.last)})


def _end_tags(result: Mapping[str, Any], sweep: TrackedSweep) -> dict[str, str | None]:
    """Return the tags of a trial that ended with a flat result."""
    epoch = int(result.get(TRAINING_ITERATION, 0))
    rung = max((rung for rung in sweep.details.rungs() if rung <= epoch), default=None)
    tags = {RUNG_TAG: None if rung is None else str(rung)}
    if sweep.constraints:
        tags[FEASIBLE_TAG] = str(is_feasible(sweep.constraints, result)).lower()
    return tags


def _node_name(result: Mapping[str, Any]) -> str:
    """Return the host name and address of the machine that reported a result."""
    names = [str(name) for name in (result.get(HOSTNAME), result.get(NODE_IP)) if name]
    return " ".join(dict.fromkeys(names))
