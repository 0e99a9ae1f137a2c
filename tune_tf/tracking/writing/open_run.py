"""Open MLflow run that skips values it already has."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tune_tf.secrets import mask_secrets
from tune_tf.tracking.names import EXPLOITS
from tune_tf.tracking.writing.run_update import (
    STOP_CAUSE_TAG,
    STOP_REASON_TAG,
    Report,
    RunUpdate,
    split_into_batches,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

_logger = logging.getLogger(__name__)

# MLflow's limits per request: 1,000 values in all, 100 parameters, 100 tags.
MAX_PARAMS_A_BATCH = 100
MAX_TAGS_A_BATCH = 100
MAX_METRICS_A_BATCH = 1000 - MAX_PARAMS_A_BATCH - MAX_TAGS_A_BATCH
_PERMANENT = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"})


class Rejections:
    """Counter of values that MLflow rejects permanently; warns of the first."""

    def __init__(self, *, over_http: bool) -> None:
        self.num_values = 0
        self._over_http = over_http

    def is_permanent(self, error: Exception) -> bool:
        """Return whether MLflow itself raised an error that a retry would raise again."""
        from mlflow.exceptions import RestException

        # Over HTTP, a proxy may respond for a server that is starting.
        is_mlflows = not self._over_http or isinstance(error, RestException)
        return is_mlflows and getattr(error, "error_code", None) in _PERMANENT

    def count(self, num_values: int, error: object) -> None:
        """Count rejected values, and warn of the first."""
        if not self.num_values:
            _logger.warning(
                "MLflow rejected a value, which is left out of its runs: %s",
                mask_secrets(str(error)),
            )
        self.num_values += num_values


MetricPoint = tuple[int, int]
"""Position of a report in its run: number of copies of other trials' weights, and step.

After a copy, a trial may report a step again with another value.
"""

NO_POINT: MetricPoint = (0, -1)


@dataclass
class OpenRun:
    """Open MLflow run that skips values it already has."""

    client: "MlflowClient"
    rejections: Rejections
    run_id: str
    status: str = "RUNNING"  # MLflow's as last written
    params: dict[str, str] = field(default_factory=dict)
    last: MetricPoint = NO_POINT  # of the last report
    last_ms: int | None = None
    """Time of the last report, since the epoch; None if it is known to be complete."""
    is_deleted: bool = False

    def write(self, update: RunUpdate) -> None:
        """Write an update, except the end of the run and the artifacts."""
        if update.reopen and self.status != "RUNNING":
            self._attempt(self._reopen)
        update.reopen = False
        if update.name is not None:
            self._attempt(partial(self.client.update_run, self.run_id, name=update.name))
            update.name = None
        self._write_values(update)

    def end(self, update: RunUpdate) -> None:
        """Write the end of the run and the artifacts of an update."""
        if update.status is not None:
            end = partial(self.client.set_terminated, self.run_id, update.status, update.end_ms)
            self._attempt(end)
            self.status, update.status = update.status, None
        # Last, since only the artifact store may be unavailable.
        self._write_artifacts(update)

    def _reopen(self) -> None:
        self.client.update_run(self.run_id, status="RUNNING")
        tags = self.client.get_run(self.run_id).data.tags
        for key in (STOP_REASON_TAG, STOP_CAUSE_TAG):
            if key in tags:
                self.client.delete_tag(self.run_id, key)
        self.status = "RUNNING"

    def _write_values(self, update: RunUpdate) -> None:
        """Write parameters, metrics and tags, in requests within MLflow's limits."""
        params = self.params
        # A parameter cannot change, a tag can.
        update.tags |= {key: v for key, v in update.params.items() if params.get(key, v) != v}
        update.params = {key: v for key, v in update.params.items() if key not in params}
        update.reports = _missing_reports(update.reports, self)
        groups = list(split_into_batches(update.reports, MAX_METRICS_A_BATCH))
        update.reports = [report for group in groups for report in group]
        while groups or update.params or update.tags:
            group = groups.pop(0) if groups else []
            params = dict(list(update.params.items())[:MAX_PARAMS_A_BATCH])
            tags = dict(list(update.tags.items())[:MAX_TAGS_A_BATCH])
            self._send(_batch(params, group, tags))
            self.params.update(params)
            points = [_point(report) for report in group if report.once]
            if points:
                self.last, self.last_ms = max([self.last, *points]), None
            del update.reports[: len(group)]
            for values, sent in ((update.params, params), (update.tags, tags)):
                for key in sent:
                    del values[key]

    def _send(self, batch: dict[str, list[Any]]) -> None:
        """Log a batch; if MLflow rejects it, log all but the rejected values."""
        count = sum(len(values) for values in batch.values())
        if self.is_deleted:
            self.rejections.count(count, "its run was deleted")
            return
        error = self._call(partial(self.client.log_batch, self.run_id, **batch))
        if error is not None and (self.is_deleted or count == 1):
            self.rejections.count(count, error)
        elif error is not None:
            for part in _split_batch(batch):
                self._send(part)

    def _attempt(self, call: Callable[[], object]) -> None:
        """Make a call that writes one value; skip a rejected value."""
        if (error := self._call(call)) is not None:
            self.rejections.count(1, error)

    def _call(self, call: Callable[[], object]) -> Exception | None:
        """Make a call; return the error if MLflow rejects its values permanently."""
        try:
            call()
        except Exception as error:
            if not self.rejections.is_permanent(error):
                raise
            self.is_deleted = not self._exists()
            return error
        return None

    def _write_artifacts(self, update: RunUpdate) -> None:
        for name, text in list(update.texts.items()):
            self._attempt(partial(self.client.log_text, self.run_id, text, name))
            del update.texts[name]
        for path, file in list(update.files.items()):
            if Path(file).is_file():
                self._attempt(partial(self._upload, path, file))
            else:
                self.rejections.count(1, f"the file {file} no longer exists")
            del update.files[path]

    def _upload(self, path: str, file: str) -> None:
        folder, _, name = path.rpartition("/")
        if Path(file).name == name:
            self.client.log_artifact(self.run_id, file, folder or None)
            return
        with TemporaryDirectory() as directory:  # the client names an artifact after the file
            link = Path(directory, name)
            link.symlink_to(Path(file).absolute())
            self.client.log_artifact(self.run_id, str(link), folder or None)

    def _exists(self) -> bool:
        try:
            return bool(self.client.get_run(self.run_id).info.lifecycle_stage != "deleted")
        except Exception as error:
            if not self.rejections.is_permanent(error):
                raise
            return False


def _batch(
    params: Mapping[str, str], reports: Iterable[Report], tags: Mapping[str, str]
) -> dict[str, list[Any]]:
    """Return the arguments of ``log_batch``, without empty ones.

    Tags are last, as MLflow writes them too: the stop reason must not precede its metrics.
    """
    from mlflow.entities import Metric, Param, RunTag

    batch: dict[str, list[Any]] = {
        "params": [Param(key, value) for key, value in params.items()],
        "metrics": [
            Metric(key, value, report.time_ms, report.step)
            for report in reports
            for key, value in report.metrics.items()
        ],
        "tags": [RunTag(key, value) for key, value in tags.items()],
    }
    return {kind: values for kind, values in batch.items() if values}


def _split_batch(batch: Mapping[str, list[Any]]) -> list[dict[str, list[Any]]]:
    """Split a batch by kind, or a batch of one kind into halves."""
    if len(batch) > 1:
        return [{kind: values} for kind, values in batch.items()]
    [(kind, values)] = batch.items()
    middle = len(values) // 2
    return [{kind: values[:middle]}, {kind: values[middle:]}]


def _missing_reports(reports: list[Report], run: OpenRun) -> list[Report]:
    """Return the reports that a run does not have yet."""
    missing: list[Report] = []
    last = run.last
    for report in reports:
        if not report.once or _point(report) > last:
            missing.append(report)
            last = max(last, _point(report)) if report.once else last
        elif (_point(report), report.time_ms) == (run.last, run.last_ms) and (
            len(report.metrics) > MAX_METRICS_A_BATCH
        ):
            # A killed process may have sent only the first batch. MLflow skips the metrics that it
            # already has with the same time and value.
            missing.append(report)
    return missing


def _point(report: Report) -> MetricPoint:
    return int(report.metrics.get(EXPLOITS, 0)), report.step
