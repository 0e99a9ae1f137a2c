"""The MLflow runs of one sweep: a parent and a child for each trial.

Everything here runs in the writer's thread, which is where MLflow is loaded and its store opened:
that takes seconds, which the sweep does not wait for.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.outcome import Outcome
from tune_tf.secrets import mask_all
from tune_tf.tracking.descriptions import DESCRIPTION_TAG
from tune_tf.tracking.names import EXPLOITS, TIME_TOTAL, safe_file_name
from tune_tf.tracking.uri import create_sqlite_store, sqlite_path
from tune_tf.tracking.writing.open_run import NO_POINT, MetricPoint, OpenRun, Refusals
from tune_tf.tracking.writing.run_update import (
    PARENT,
    STOP_REASON_TAG,
    SWEEP_ID_TAG,
    TRIAL_ID_TAG,
    RunUpdate,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_logger = logging.getLogger(__name__)

_PAGE = 1000
_ENVIRONMENT = {
    # With a server MLflow prints a line with its address, and any password in that, for each run.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # A try that was answered unclearly must come back here: MLflow's own further tries would make
    # a second run of one whose making was not confirmed, and hold the end of a sweep for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
_NOISY = {
    "alembic": logging.WARNING,
    "mlflow.store.db.utils": logging.CRITICAL,  # it prints a traceback for what is raised anyway
    "mlflow.utils.git_utils": logging.ERROR,
    "mlflow.tracking.context.registry": logging.ERROR,
}
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # how MLflow shows it


@dataclass(frozen=True)
class TrackedSweep:
    """What all runs of a sweep have in common.

    Args:
        sweep_id: Tag that holds the runs together.
        tracking_uri: Where MLflow keeps its runs.
        experiment_name: MLflow experiment of all runs; made if it does not exist.
        tags: Tags of all runs.
        marker: Metric that every report of the parent holds, if there is one.
        reopen: Whether there may be runs of this sweep already.
        trial_ids: Trials that had a run when the sweep was last saved; None if it never was.

    What is kept with a spool, for another process to go on, leaves out the tracking URI: it may
    hold a password.
    """

    sweep_id: str
    tracking_uri: str
    experiment_name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    marker: str | None = None
    reopen: bool = False
    trial_ids: frozenset[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain data, without its tracking URI."""
        data = asdict(self)
        del data["tracking_uri"]
        data["trial_ids"] = None if self.trial_ids is None else sorted(self.trial_ids)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], tracking_uri: str) -> "TrackedSweep":
        """Return the sweep that :meth:`to_dict` gave, of which there are runs already."""
        ids = data["trial_ids"]
        known = None if ids is None else frozenset(ids)
        return cls(**{**data, "tracking_uri": tracking_uri, "reopen": True, "trial_ids": known})


def connect(tracking_uri: str) -> "MlflowClient":
    """Load MLflow and open its store.

    Sets what the user has not set in this process's environment: no telemetry, no address printed
    for each run, and one try of at most 30 seconds for each HTTP request
    (``MLFLOW_HTTP_REQUEST_MAX_RETRIES``, ``MLFLOW_HTTP_REQUEST_TIMEOUT``), since the writer tries
    again itself.
    """
    if "DO_NOT_TRACK" not in os.environ:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    for name, level in _NOISY.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
    # Loaded here and not above: it takes seconds, and only the writer's thread has them.
    from mlflow import MlflowClient

    if path := sqlite_path(tracking_uri):
        create_sqlite_store(path)
    return MlflowClient(tracking_uri=tracking_uri)


class SweepRuns:
    """Writes entries to the runs of a sweep, making or reopening the run when it is first needed.

    Args:
        client: MLflow's client, or what stands in for it.
        sweep: What the runs have in common.

    An entry may come twice, in the same order as the first time: a report is left out if the run
    has one of its step, or of a later one, and everything else gives the same when it is repeated.
    What MLflow will never take is left out alone, with one warning for all, and counted.
    """

    def __init__(self, client: "MlflowClient", sweep: TrackedSweep) -> None:
        self._client = client
        self._sweep = sweep
        over_http = sweep.tracking_uri.startswith(("http://", "https://", "databricks"))
        self._refusals = Refusals(over_http=over_http)
        self._experiment = self._experiment_id()
        self._open: dict[str, OpenRun] = {}
        self._unsure: set[str] = set()
        self._context_tags: dict[str, str] | None = None
        self._found: dict[str, Run] = {}
        if sweep.reopen:
            self._find()

    @property
    def num_refused(self) -> int:
        """How many values MLflow will never take."""
        return self._refusals.num_values

    @property
    def run_ids(self) -> dict[str, str]:
        """Trial id, or :data:`PARENT`, to MLflow's run id, of the runs found and those made."""
        found = {key: run.info.run_id for key, run in self._found.copy().items()}
        return {**found, **{key: run.run_id for key, run in self._open.copy().items()}}

    def run_id_of(self, run: str) -> str | None:
        """MLflow's id of a trial's run; None until the run is open."""
        found = self._open.get(run)
        return found.run_id if found else None

    def write(self, entry: RunUpdate) -> None:
        """Write an entry, taking out of it what has been written."""
        run = self._run(entry)
        run.write(entry)
        if entry.trials is not None:
            self._settle(entry.trials, entry.ends)
            entry.trials = None
        run.end(entry)

    def end_running(self) -> list[str]:
        """End the runs that are running as those of an interrupted sweep; return their ids."""
        running = [run for run in self._search() if run.info.status == "RUNNING"]
        for run in running:
            self._interrupt(run, self._last_report(run.data.tags.get(TRIAL_ID_TAG, PARENT), run)[1])
        return [run.info.run_id for run in running]

    def _interrupt(
        self, run: "Run", end_ms: int | None = None, outcome: Outcome = Outcome.INTERRUPTED
    ) -> None:
        self._client.set_tag(run.info.run_id, STOP_REASON_TAG, outcome.value)
        self._client.set_terminated(run.info.run_id, outcome.mlflow, end_ms)
        note = run.data.tags.get(DESCRIPTION_TAG, "")
        if TRIAL_ID_TAG not in run.data.tags and "running" in note:
            text = note.replace("running", "interrupted", 1)
            self._client.set_tag(run.info.run_id, DESCRIPTION_TAG, text)

    def _experiment_id(self) -> str:
        name = self._sweep.experiment_name
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return experiment.experiment_id
        path = sqlite_path(self._sweep.tracking_uri)
        if path is None or path.absolute().parent == Path.cwd():
            return self._client.create_experiment(name, tags=_EXPERIMENT_TAGS)
        # MLflow would put the artifacts of a database elsewhere into the working directory.
        folder = path.absolute().parent / "mlruns" / safe_file_name(name)
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
                f"tags.`{SWEEP_ID_TAG}` = '{self._sweep.sweep_id}'{condition}",
                max_results=_PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            runs.extend(page)
            token = page.token
            if not token:
                return runs

    def _find(self, condition: str = "") -> None:
        """Note the runs that there are; of two of one trial the one that has been written to."""
        for run in self._search(condition):
            key = run.data.tags.get(TRIAL_ID_TAG, PARENT)
            known = self._found.get(key)
            if known is None or not (known.data.metrics or known.data.params):
                self._found[key] = run

    def _run(self, entry: RunUpdate) -> OpenRun:
        if entry.run != PARENT and PARENT not in self._open:
            self._run(RunUpdate(PARENT, entry.time_ms))
        run = self._open.get(entry.run)
        if run is not None and entry.fresh and _differ(run.params, entry.params):
            # Tune forgot the trial when it was killed, and has given its id to another.
            self._client.delete_run(run.run_id)
            self._found.pop(entry.run, None)
            del self._open[entry.run]
            run = None
        if run is None:
            run = self._adopt(entry) or self._create(entry)
            self._open[entry.run] = run
        return run

    def _adopt(self, entry: RunUpdate) -> OpenRun | None:
        """Return the run that the trial has already, if it has one."""
        role = f" AND tags.`{TRIAL_ID_TAG}` = '{entry.run}'" if entry.run else ""
        if entry.run in self._unsure or (entry.run and entry.run not in self._found):
            # Making it failed, perhaps after it was made; or the trial's own code was first.
            self._find(role)
        run = self._found.get(entry.run)
        if run is not None and entry.fresh and _differ(run.data.params, entry.params):
            # As above; a part of the parameters may be there of a killed process's last words.
            self._client.delete_run(run.info.run_id)
            del self._found[entry.run]
            self._find(role)
            run = self._found.get(entry.run)
        if run is None:
            return None
        params = dict(run.data.params)
        own = {**self._context(), **self._sweep.tags}
        missing = {name: text for name, text in own.items() if name not in run.data.tags}
        entry.tags = {**missing, **entry.tags}
        last, last_ms = self._last_report(entry.run, run)
        return OpenRun(
            self._client,
            self._refusals,
            run.info.run_id,
            status=run.info.status,
            params=params,
            last=last,
            last_ms=last_ms,
        )

    def _last_report(self, key: str, run: "Run") -> tuple[MetricPoint, int | None]:
        marker = self._sweep.marker if key == PARENT else TIME_TOTAL
        if marker not in run.data.metrics:
            return NO_POINT, None
        history = self._client.get_metric_history
        points = [((0, each.step), each.timestamp) for each in history(run.info.run_id, marker)]
        if EXPLOITS in run.data.metrics:
            points += [
                ((int(each.value), each.step), each.timestamp)
                for each in history(run.info.run_id, EXPLOITS)
            ]
        return max(points, default=(NO_POINT, None))

    def _create(self, entry: RunUpdate) -> OpenRun:
        tags = {**self._context(), **self._sweep.tags, SWEEP_ID_TAG: self._sweep.sweep_id}
        if entry.run != PARENT:
            tags[TRIAL_ID_TAG] = entry.run
            tags["mlflow.parentRunId"] = self._open[PARENT].run_id
        self._unsure.add(entry.run)
        run = self._client.create_run(
            self._experiment,
            start_time=entry.time_ms,
            tags=tags,
            run_name=entry.name,
        )
        self._unsure.discard(entry.run)
        entry.name = None
        return OpenRun(self._client, self._refusals, run.info.run_id)

    def _context(self) -> dict[str, str]:
        """Return the tags that ``mlflow.start_run`` would set: user, source, git commit."""
        if self._context_tags is None:
            # Loaded late, with MLflow itself.
            from mlflow.tracking.context.registry import resolve_tags

            self._context_tags = mask_all(resolve_tags())
        return self._context_tags

    def _settle(self, trials: frozenset[str], ends: Mapping[str, str]) -> None:
        """Leave one run for each trial and none running, whatever a killed driver left behind."""
        saved = self._sweep.trial_ids
        for run in self._search():
            trial_id = run.data.tags.get(TRIAL_ID_TAG)
            if trial_id is None:
                if run.info.run_id != self._open[PARENT].run_id:
                    self._client.delete_run(run.info.run_id)  # made by a call that had no answer
                continue
            own = self._open.get(trial_id)
            known = trial_id in trials or trial_id in (saved or ())
            ended = STOP_REASON_TAG in run.data.tags
            double = own is not None and own.run_id != run.info.run_id
            if double or (not known and not (saved is None and ended)):
                self._client.delete_run(run.info.run_id)
            elif run.info.status == "RUNNING":
                self._interrupt(run, outcome=Outcome.of_tag(ends.get(trial_id, "interrupted")))


def _differ(known: Mapping[str, str], params: Mapping[str, str]) -> bool:
    return any(known.get(key, value) != value for key, value in params.items())


def find_run_ids(client: "MlflowClient", experiment_name: str, sweep_id: str) -> dict[str, str]:
    """Return MLflow's ids of a sweep's runs, by trial id; :data:`PARENT` for the sweep's own.

    Args:
        client: MLflow's client.
        experiment_name: Their experiment; there need not be one.
        sweep_id: The sweep.
    """
    experiment = client.get_experiment_by_name(experiment_name)
    found: dict[str, str] = {}
    token = None
    while experiment is not None:
        page = client.search_runs(
            [experiment.experiment_id],
            f"tags.`{SWEEP_ID_TAG}` = '{sweep_id}'",
            max_results=_PAGE,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        for run in page:
            found.setdefault(run.data.tags.get(TRIAL_ID_TAG, PARENT), run.info.run_id)
        token = page.token
        if not token:
            break
    return found
