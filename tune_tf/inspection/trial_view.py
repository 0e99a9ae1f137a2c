"""View of one trial."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.errors import strip_colors
from tune_tf.events import TRIAL_LOG, TrialEvents
from tune_tf.inspection.reported_results import (
    REMOTE_CHECKPOINT,
    RESULTS,
    read_last_result,
    read_results,
)
from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, Outcome, is_finite
from tune_tf.outcome_rules import error_cause, infer_outcome, last_failure
from tune_tf.ranking import kept_iteration, kept_result
from tune_tf.remote_storage import CheckpointLocation
from tune_tf.result_keys import FROZEN_LAYERS, GRAPH
from tune_tf.results import TrialResult, kept_metrics
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten

_ERROR = "error.txt"


@dataclass(frozen=True)
class TrialView:
    """Snapshot of a trial, read from its folder.

    Args:
        state: How it ended, as :class:`~tune_tf.outcome.Outcome` calls it, else ``"running"``,
            ``"paused"`` by the scheduler, ``"pending"`` since a resume, or ``"interrupted"``.
        folder: Its folder, which exists once the trial has started.
        began_s: First start, in seconds since 1970; None if unknown.
        ended_s: End; None if it has not ended or the time is unknown.
        trained_s: Seconds spent in iterations.
        node: Host name and address of the node of its last result; empty without one.
        pid: Process of its last result.
        mlflow_run_id: Id of its run in MLflow, if known.
        frozen_layers: Which outputs of its frozen layers are shared, or why they are not.
        graph: Whether the graph of its epoch was traced for it, and why.
    """

    result: TrialResult
    state: str
    folder: Path
    began_s: float | None = None
    ended_s: float | None = None
    trained_s: float = 0.0
    node: str = ""
    pid: int | None = None
    mlflow_run_id: str | None = None
    frozen_layers: str = ""
    graph: str = ""

    @classmethod
    def of(
        cls,
        folder: Path,
        number: int,
        events: TrialEvents | None,
        config: SweepConfig,
        *,
        driven: bool,
        run_ids: Mapping[str, str],
    ) -> "TrialView":
        """Read a trial's folder; ``driven`` tells whether the sweep has a driver."""
        report = read_last_result(folder / RESULTS)
        if events is not None and _iteration(events.last) > _iteration(report):
            report = events.last
        last = flatten({name: value for name, value in report.items() if name != "config"})
        trial_id = events.trial_id if events else str(report.get("trial_id", folder.name))
        outcome = _outcome(events, last, folder)
        values = report.get("config") or (events.config if events else {})
        cause = (events.cause if events else None) or last.get(STOP_CAUSE)
        if cause is None and outcome in (Outcome.ERROR, Outcome.OOM):
            cause = error_cause(_error(folder)) or None
        kept = kept_result(last)
        removed = events is not None and events.checkpoints_removed
        result = TrialResult(
            trial_id=trial_id,
            number=number,
            config=values,
            outcome=outcome,
            cause=cause,
            iterations=int(last.get("training_iteration", 0)),
            metrics=kept_metrics(kept, config.constraints, config.objectives),
            checkpoint=None if removed else next(reversed(_checkpoints(folder)), None),
            feasible=is_feasible(config.constraints, kept),
            checkpoints_removed=removed,
            kept_iteration=kept_iteration(last),
            test_metrics=events.test_metrics if events else {},
        )
        names = (str(last[name]) for name in ("hostname", "node_ip") if last.get(name))
        pid = last.get("pid")
        return cls(
            result=result,
            state=_state(outcome, events, driven=driven),
            folder=folder,
            began_s=events.started_s if events else None,
            ended_s=events.ended_s if events else None,
            trained_s=_number(last.get("time_total_s")) or 0.0,
            node=" ".join(dict.fromkeys(names)),
            pid=pid if isinstance(pid, int) else None,
            mlflow_run_id=last.get(MLFLOW_RUN_ID) or run_ids.get(trial_id),
            frozen_layers=mask_secrets(str(last.get(FROZEN_LAYERS, ""))),
            graph=str(last.get(GRAPH, "")),
        )

    @property
    def trial_id(self) -> str:
        """Ray Tune's id."""
        return self.result.trial_id

    @property
    def number(self) -> int:
        """Position in the order of proposal, from 0."""
        return self.result.number

    @property
    def has_started(self) -> bool:
        """Whether its process has, so that its id is known."""
        return self.trial_id != self.folder.name

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for good, so a resume would not continue it."""
        return self.result.outcome not in (None, Outcome.INTERRUPTED)

    @property
    def error(self) -> str:
        """Text of its last failure, without colors and secrets; empty without one."""
        return last_failure(_error(self.folder)).strip()

    @property
    def checkpoints(self) -> Sequence[CheckpointLocation]:
        """Folders of its checkpoints, oldest first, or the URI of the last one."""
        return () if self.result.checkpoints_removed else _checkpoints(self.folder)

    @property
    def log(self) -> Path | None:
        """File with stdout and stderr of its processes; None if there is none."""
        path = self.folder / TRIAL_LOG
        return path if path.is_file() else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the outcome is the state, times are in seconds since 1970."""
        own = {**vars(self), "outcome": self.state, "folder": str(self.folder)}
        del own["result"], own["state"]
        return {**self.result.to_dict(), **own}

    def curve(self, metric: str) -> dict[int, float]:
        """Return a metric's finite values by iteration, the last one of a repeated iteration."""
        values: dict[int, float] = {}
        for report in read_results(self.folder / RESULTS):
            iteration = report.get("training_iteration")
            value: Any = report[metric] if metric in report else flatten(report).get(metric)
            if isinstance(iteration, int) and is_finite(value):
                values[iteration] = float(value)
        return dict(sorted(values.items()))


def _iteration(report: Mapping[str, Any]) -> int:
    iteration = report.get("training_iteration")
    return iteration if isinstance(iteration, int) else 0


def _outcome(events: TrialEvents | None, last: Mapping[str, Any], folder: Path) -> Outcome | None:
    recorded = events.outcome if events else None
    if recorded is None and last.get("done"):
        recorded = Outcome.of_result(last)
    error = _error(folder) if recorded is None and events is None else ""
    return infer_outcome(None, recorded=recorded, error=error or None)


def _state(outcome: Outcome | None, events: TrialEvents | None, *, driven: bool) -> str:
    if outcome is not None:
        return str(outcome.value)
    if not driven:
        return str(Outcome.INTERRUPTED.value)
    return (events.waiting if events else None) or "running"


def _checkpoints(folder: Path) -> Sequence[CheckpointLocation]:
    # Unlike that of a path, it passes over folders that are removed meanwhile.
    files = glob.glob("checkpoint_[0-9]*/*", root_dir=folder)  # noqa: PTH207
    if existing := sorted({folder / Path(file).parent for file in files}):
        return existing
    try:
        uri = (folder / REMOTE_CHECKPOINT).read_text(encoding="utf-8").strip()
    except OSError:
        return ()
    return [uri] if uri else ()


def _error(folder: Path) -> str:
    try:
        text = (folder / _ERROR).read_text(errors="replace")
    except OSError:
        return ""
    return mask_secrets(strip_colors(text))


def _number(value: Any) -> float | None:
    return float(value) if is_finite(value) else None
