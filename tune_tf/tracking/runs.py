"""The MLflow runs of one sweep: a parent and a child for each trial.

Everything here runs in the writer's thread, which is where MLflow is loaded and its store opened:
that takes seconds, which the sweep does not wait for.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tune_tf.outcome import Outcome
from tune_tf.tracking.entry import (
    PARENT,
    STOP_CAUSE_TAG,
    STOP_REASON_TAG,
    SWEEP_ID,
    TRIAL_ID,
    Entry,
    Report,
    batches,
)
from tune_tf.tracking.names import TIME_TOTAL
from tune_tf.tracking.uri import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MAX_METRICS_A_BATCH = 1000
MAX_PARAMS_A_BATCH = 100
MAX_TAGS_A_BATCH = 100
_PAGE = 1000
_PERMANENT = frozenset(
    {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED", "INVALID_STATE"}
)
_NOISY = {
    "alembic": logging.WARNING,
    "mlflow.store.db.utils": logging.CRITICAL,  # it prints a traceback for what is raised anyway
    "mlflow.utils.git_utils": logging.ERROR,
    "mlflow.tracking.context.registry": logging.ERROR,
}
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # how MLflow shows it


@dataclass(frozen=True)
class Sweep:
    """What all runs of a sweep have in common.

    Args:
        sweep_id: Tag that holds the runs together.
        tracking_uri: Where MLflow keeps its runs.
        experiment_name: MLflow experiment of all runs; made if it does not exist.
        tags: Tags of all runs.
        marker: Metric that every report of the parent holds, if there is one.
        reopen: Whether there may be runs of this sweep already.
        trial_ids: Trials that had a run when the sweep was last saved; None if it never was.
    """

    sweep_id: str
    tracking_uri: str
    experiment_name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    marker: str | None = None
    reopen: bool = False
    trial_ids: frozenset[str] | None = None


def connect(tracking_uri: str) -> "MlflowClient":
    """Load MLflow, quietly and without its telemetry unless the user chose it; open its store."""
    if "DO_NOT_TRACK" not in os.environ:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    for name, level in _NOISY.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
    # Loaded here and not above: it takes seconds, and only the writer's thread has them.
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri)


@dataclass
class _Handle:
    """A run that is open for writing.

    Args:
        run_id: MLflow's id.
        status: MLflow's status as last written.
        params: Parameters that the run has.
        last_step: Step of the last report that the run has.
    """

    run_id: str
    status: str = "RUNNING"
    params: dict[str, str] = field(default_factory=dict)
    last_step: int = -1


class SweepRuns:
    """Writes entries to the runs of a sweep, making or reopening the run when it is first needed.

    Args:
        client: MLflow's client, or what stands in for it.
        sweep: What the runs have in common.
    """

    def __init__(self, client: "MlflowClient", sweep: Sweep) -> None:
        self._client = client
        self._sweep = sweep
        self._experiment = self._experiment_id()
        self._handles: dict[str, _Handle] = {}
        self._unsure: set[str] = set()
        self._context_tags: dict[str, str] | None = None
        self._found: dict[str, Run] = {}
        if sweep.reopen:
            for run in self._search():
                self._found.setdefault(run.data.tags.get(TRIAL_ID, PARENT), run)

    @property
    def run_ids(self) -> dict[str, str]:
        """Trial id, or :data:`PARENT`, to MLflow's run id, as far as runs are open."""
        return {run: handle.run_id for run, handle in self._handles.copy().items()}

    def run_id_of(self, run: str) -> str | None:
        """MLflow's id of a trial's run; None until the run is open."""
        handle = self._handles.get(run)
        return handle.run_id if handle else None

    def is_permanent(self, error: Exception) -> bool:
        """Return whether trying again would give the same error."""
        return getattr(error, "error_code", None) in _PERMANENT

    def write(self, entry: Entry) -> None:
        """Write an entry, taking out of it what has been written."""
        handle = self._handle(entry)
        if entry.reopen and handle.status != "RUNNING":
            self._reopen(handle)
        entry.reopen = False
        if entry.name is not None:
            self._client.update_run(handle.run_id, name=entry.name)
            entry.name = None
        self._write_params(handle, entry)
        self._write_reports(handle, entry)
        self._write_tags(handle, entry)
        for name, text in list(entry.texts.items()):
            self._client.log_text(handle.run_id, text, name)
            del entry.texts[name]
        if entry.trials is not None:
            self._settle(entry.trials)
            entry.trials = None
        if entry.status is not None:
            self._client.set_terminated(handle.run_id, entry.status, entry.end_ms)
            handle.status, entry.status = entry.status, None

    def _experiment_id(self) -> str:
        name = self._sweep.experiment_name
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return experiment.experiment_id
        path = sqlite_path(self._sweep.tracking_uri)
        if path is None or path.absolute().parent == Path.cwd():
            return self._client.create_experiment(name, tags=_EXPERIMENT_TAGS)
        # MLflow would put the artifacts of a database elsewhere into the working directory.
        folder = path.absolute().parent / "mlruns" / name
        return self._client.create_experiment(
            name, artifact_location=folder.as_uri(), tags=_EXPERIMENT_TAGS
        )

    def _search(self, condition: str = "") -> "list[Run]":
        """Return the sweep's runs, the oldest first."""
        runs: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment],
                f"tags.`{SWEEP_ID}` = '{self._sweep.sweep_id}'{condition}",
                max_results=_PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            runs.extend(page)
            token = page.token
            if not token:
                return runs

    def _handle(self, entry: Entry) -> _Handle:
        if entry.run != PARENT and PARENT not in self._handles:
            self._handle(Entry(PARENT, entry.time_ms))
        handle = self._handles.get(entry.run)
        if handle is None:
            handle = self._adopt(entry) or self._create(entry)
            self._handles[entry.run] = handle
        return handle

    def _adopt(self, entry: Entry) -> _Handle | None:
        """Return the run that the trial has already, if it has one."""
        if entry.run in self._unsure:  # making it failed, perhaps after it was made
            role = f" AND tags.`{TRIAL_ID}` = '{entry.run}'" if entry.run else ""
            for run in self._search(role):
                self._found.setdefault(run.data.tags.get(TRIAL_ID, PARENT), run)
        run = self._found.get(entry.run)
        if run is None:
            return None
        params = dict(run.data.params)
        if entry.fresh and params and params != entry.params:
            # Of a trial that Tune forgot when it was killed, and whose id it has given anew.
            self._client.delete_run(run.info.run_id)
            del self._found[entry.run]
            return None
        return _Handle(run.info.run_id, run.info.status, params, self._last_step(entry.run, run))

    def _last_step(self, key: str, run: "Run") -> int:
        marker = self._sweep.marker if key == PARENT else TIME_TOTAL
        if marker not in run.data.metrics:
            return -1
        history = self._client.get_metric_history(run.info.run_id, marker)
        return max((metric.step for metric in history), default=-1)

    def _create(self, entry: Entry) -> _Handle:
        tags = {**self._context(), **self._sweep.tags, SWEEP_ID: self._sweep.sweep_id}
        if entry.run != PARENT:
            tags[TRIAL_ID] = entry.run
            tags["mlflow.parentRunId"] = self._handles[PARENT].run_id
        self._unsure.add(entry.run)
        run = self._client.create_run(
            self._experiment,
            start_time=entry.time_ms,
            tags=tags,
            run_name=entry.name,
        )
        self._unsure.discard(entry.run)
        entry.name = None
        return _Handle(run.info.run_id)

    def _context(self) -> dict[str, str]:
        """Return the tags that ``mlflow.start_run`` would set: user, source, git commit."""
        if self._context_tags is None:
            # Loaded late, with MLflow itself.
            from mlflow.tracking.context.registry import resolve_tags

            self._context_tags = dict(resolve_tags())
        return self._context_tags

    def _reopen(self, handle: _Handle) -> None:
        self._client.update_run(handle.run_id, status="RUNNING")
        tags = self._client.get_run(handle.run_id).data.tags
        for key in (STOP_REASON_TAG, STOP_CAUSE_TAG):
            if key in tags:
                self._client.delete_tag(handle.run_id, key)
        handle.status = "RUNNING"

    def _write_params(self, handle: _Handle, entry: Entry) -> None:
        from mlflow.entities import Param

        for key, value in list(entry.params.items()):
            known = handle.params.get(key)
            if known is not None:
                del entry.params[key]
                if known != value:  # a parameter cannot change, a tag can
                    entry.tags[key] = value
        while entry.params:
            batch = dict(list(entry.params.items())[:MAX_PARAMS_A_BATCH])
            self._client.log_batch(
                handle.run_id, params=[Param(key, value) for key, value in batch.items()]
            )
            handle.params.update(batch)
            for key in batch:
                del entry.params[key]

    def _write_reports(self, handle: _Handle, entry: Entry) -> None:
        from mlflow.entities import Metric

        entry.reports = _new(entry.reports, handle.last_step)
        groups = list(batches(entry.reports, MAX_METRICS_A_BATCH))
        entry.reports = [report for group in groups for report in group]
        for group in groups:
            self._client.log_batch(
                handle.run_id,
                metrics=[
                    Metric(key, value, report.time_ms, report.step)
                    for report in group
                    for key, value in report.metrics.items()
                ],
            )
            steps = [report.step for report in group if report.once]
            handle.last_step = max([handle.last_step, *steps])
            del entry.reports[: len(group)]

    def _write_tags(self, handle: _Handle, entry: Entry) -> None:
        from mlflow.entities import RunTag

        while entry.tags:
            batch = dict(list(entry.tags.items())[:MAX_TAGS_A_BATCH])
            self._client.log_batch(
                handle.run_id, tags=[RunTag(key, value) for key, value in batch.items()]
            )
            for key in batch:
                del entry.tags[key]

    def _settle(self, trials: frozenset[str]) -> None:
        """Leave one run for each trial and none running, whatever a killed driver left behind."""
        saved = self._sweep.trial_ids
        for run in self._search():
            trial_id = run.data.tags.get(TRIAL_ID)
            if trial_id is None:
                continue
            own = self._handles.get(trial_id)
            known = trial_id in trials or trial_id in (saved or ())
            ended = STOP_REASON_TAG in run.data.tags
            double = own is not None and own.run_id != run.info.run_id
            if double or (not known and not (saved is None and ended)):
                self._client.delete_run(run.info.run_id)
            elif run.info.status == "RUNNING":
                outcome = Outcome.INTERRUPTED
                self._client.set_tag(run.info.run_id, STOP_REASON_TAG, outcome.value)
                self._client.set_terminated(run.info.run_id, outcome.mlflow)


def _new(reports: list[Report], last_step: int) -> list[Report]:
    """Return the reports of steps that a run does not have yet."""
    new: list[Report] = []
    for report in reports:
        if not report.once or report.step > last_step:
            new.append(report)
            last_step = max(last_step, report.step) if report.once else last_step
    return new
