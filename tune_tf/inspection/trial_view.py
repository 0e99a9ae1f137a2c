"""One trial as the sweep's folder shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.events import TRIAL_LOG, TrialEvents
from tune_tf.inspection.reported_results import (
    REMOTE_CHECKPOINT,
    RESULTS,
    last_report,
    metric_value,
    reports,
)
from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, Outcome, is_finite
from tune_tf.remote_storage import CheckpointPlace
from tune_tf.results import TrialResult, told_metrics
from tune_tf.secrets import masked
from tune_tf.space import flat
from tune_tf.tracking.run_outcome import cause_of, last_failure, plain

_ERROR = "error.txt"
_CHECKPOINTS = "checkpoint_[0-9]*"


@dataclass(frozen=True)
class TrialView:
    """One trial.

    Args:
        result: Its config, outcome and last metrics.
        state: How it ended, as :class:`~tune_tf.outcome.TaskResult` calls it, else ``"running"``,
            ``"paused"`` by the scheduler, ``"pending"`` since a resume, or ``"interrupted"``.
        folder: Its folder; it is not there for a trial that never started.
        began_s: When it first started, in seconds since 1970; None if that is not known.
        ended_s: When it ended; None if it has not, or that is not known.
        trained_s: Seconds spent in iterations.
        last_s: When it last reported, in whole seconds since 1970; None if it never did.
        node: Host name and address of the machine of its last report; empty without one.
        pid: Process of its last report.
        mlflow_run_id: MLflow's id of its run, if it is known.
    """

    result: TrialResult
    state: str
    folder: Path
    began_s: float | None = None
    ended_s: float | None = None
    trained_s: float = 0.0
    last_s: float | None = None
    node: str = ""
    pid: int | None = None
    mlflow_run_id: str | None = None

    @classmethod
    def of(
        cls,
        folder: Path,
        number: int,
        page: TrialEvents | None,
        config: SweepConfig,
        *,
        driven: bool,
        run_ids: Mapping[str, str],
    ) -> "TrialView":
        """Read a trial's folder.

        Args:
            folder: The trial's folder.
            number: Place in the order of proposal, from 0.
            page: What the sweep's diary tells of it; None for nothing.
            config: The sweep's settings.
            driven: Whether the sweep is running.
            run_ids: MLflow's ids of the trials' runs that are known beside their reports.
        """
        report = _newest(last_report(folder / RESULTS), page)
        last = flat({name: value for name, value in report.items() if name != "config"})
        trial_id = page.trial_id if page else str(report.get("trial_id", folder.name))
        outcome = _outcome(page, last, folder)
        values = report.get("config") or (page.config if page else {})
        cause = (page.cause if page else None) or last.get(STOP_CAUSE)
        if cause is None and outcome in (Outcome.ERROR, Outcome.OOM):
            cause = cause_of(_error(folder)) or None
        removed = page is not None and page.checkpoints_removed
        result = TrialResult(
            trial_id=trial_id,
            number=number,
            config=values,
            outcome=outcome,
            cause=cause,
            iterations=int(last.get("training_iteration", 0)),
            metrics=told_metrics(last, config.constraints, config.objectives),
            checkpoint=None if removed else _last_checkpoint(folder),
            feasible=is_feasible(config.constraints, last),
            checkpoints_removed=removed,
        )
        names = (str(last[name]) for name in ("hostname", "node_ip") if last.get(name))
        pid = last.get("pid")
        return cls(
            result=result,
            state=_state(outcome, page, driven=driven),
            folder=folder,
            began_s=page.started_s if page else _begun(last),
            ended_s=page.ended_s if page else None,
            trained_s=_number(last.get("time_total_s")) or 0.0,
            last_s=_number(last.get("timestamp")),
            node=" ".join(dict.fromkeys(names)),
            pid=pid if isinstance(pid, int) else None,
            mlflow_run_id=last.get(MLFLOW_RUN_ID) or run_ids.get(trial_id),
        )

    @property
    def trial_id(self) -> str:
        """Ray Tune's id."""
        return self.result.trial_id

    @property
    def number(self) -> int:
        """Place in the order of proposal, from 0."""
        return self.result.number

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and a resume would not go on with it."""
        return self.result.outcome not in (None, Outcome.INTERRUPTED)

    @cached_property
    def error(self) -> str:
        """Text of its last failure, without colours and secrets; empty if it has not failed."""
        return last_failure(_error(self.folder)).strip()

    @property
    def checkpoints(self) -> Sequence[CheckpointPlace]:
        """The folders of its checkpoints that are kept, oldest first; else the last one's URI."""
        return () if self.result.checkpoints_removed else _checkpoints(self.folder)

    @property
    def log(self) -> Path | None:
        """The file of what its processes wrote to stdout and stderr; None where there is none."""
        path = self.folder / TRIAL_LOG
        return path if path.is_file() else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; times in seconds since 1970."""
        result = self.result
        return {
            "trial_id": result.trial_id,
            "number": result.number,
            "outcome": self.state,
            "cause": result.cause,
            "config": result.config,
            "iterations": result.iterations,
            "metrics": result.metrics,
            "feasible": result.feasible,
            "began_s": self.began_s,
            "ended_s": self.ended_s,
            "trained_s": self.trained_s,
            "last_s": self.last_s,
            "node": self.node,
            "pid": self.pid,
            "mlflow_run_id": self.mlflow_run_id,
            "checkpoint": str(result.checkpoint) if result.checkpoint else None,
            "checkpoints_removed": result.checkpoints_removed,
        }

    def curve(self, metric: str) -> dict[int, float]:
        """Return a metric by iteration, in order; of an iteration done again, the last value.

        Args:
            metric: Its name; nested ones by their path. Values that are not finite are left out.
        """
        values: dict[int, float] = {}
        for report in reports(self.folder / RESULTS):
            iteration, value = report.get("training_iteration"), metric_value(report, metric)
            if isinstance(iteration, int) and is_finite(value):
                values[iteration] = float(value)
        return dict(sorted(values.items()))


def _newest(report: Mapping[str, Any], page: TrialEvents | None) -> Mapping[str, Any]:
    """Return a trial's last report: the diary's of its end, where the file has lost that."""
    if page is None or _iteration(page.last) <= _iteration(report):
        return report
    return page.last


def _iteration(report: Mapping[str, Any]) -> int:
    iteration = report.get("training_iteration")
    return iteration if isinstance(iteration, int) else 0


def _outcome(page: TrialEvents | None, last: Mapping[str, Any], folder: Path) -> Outcome | None:
    if page is not None and page.outcome is not None:
        return page.outcome
    if last.get("done") and (outcome := Outcome.of_result(last)):
        return outcome
    if page is None and (error := _error(folder)):
        return Outcome.of_error(last_failure(error))
    return None


def _state(outcome: Outcome | None, page: TrialEvents | None, *, driven: bool) -> str:
    if outcome is not None:
        return str(outcome.value)
    if not driven:
        return str(Outcome.INTERRUPTED.value)
    return (page.waits if page else None) or "running"


def _begun(last: Mapping[str, Any]) -> float | None:
    now, total = _number(last.get("timestamp")), _number(last.get("time_total_s"))
    return None if now is None or total is None else now - total


def _checkpoints(folder: Path) -> Sequence[CheckpointPlace]:
    there = [path for path in sorted(folder.glob(_CHECKPOINTS)) if _holds_files(path)]
    if there:
        return there
    try:
        uri = (folder / REMOTE_CHECKPOINT).read_text().strip()
    except OSError:
        return ()
    return [uri] if uri else ()


def _holds_files(path: Path) -> bool:
    try:
        return any(path.iterdir())
    except FileNotFoundError:  # the sweep has removed it meanwhile
        return False


def _last_checkpoint(folder: Path) -> CheckpointPlace | None:
    found_there = _checkpoints(folder)
    return found_there[-1] if found_there else None


def _error(folder: Path) -> str:
    try:
        text = (folder / _ERROR).read_text(errors="replace")
    except OSError:
        return ""
    return masked(plain(text))


def _number(value: Any) -> float | None:
    return float(value) if is_finite(value) else None
