"""MLflow runs of a sweep: a parent run and one child run per trial.

A sweep uses this module in the writer's thread only, since loading MLflow and opening its store
takes seconds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.outcome import Outcome
from tune_tf.secrets import mask_all
from tune_tf.tracking.names import EXPLOITS, NUM_ENDED_METRIC, TIME_TOTAL, safe_file_name
from tune_tf.tracking.store import sqlite_path
from tune_tf.tracking.writing.open_run import NO_POINT, MetricPoint, OpenRun, Rejections
from tune_tf.tracking.writing.run_update import (
    DESCRIPTION_TAG,
    PARENT,
    PARENT_RUN_TAG,
    STOP_REASON_TAG,
    SWEEP_ID_TAG,
    TRIAL_ID_TAG,
    RunUpdate,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_PAGE = 1000
# Selects the view in MLflow.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


@dataclass(frozen=True)
class TrackedSweep:
    """Settings of all MLflow runs of a sweep.

    Args:
        sweep_id: Tag shared by the runs.
        tracking_uri: MLflow's store.
        experiment_name: MLflow experiment of all runs, created if missing.
        tags: Tags of all runs.
        reopen: Whether runs of this sweep may exist already.
        trial_ids: Trials with a run at the last save of the sweep; None if it was never saved.
    """

    sweep_id: str
    tracking_uri: str
    experiment_name: str
    tags: Mapping[str, str] = field(default_factory=dict)
    reopen: bool = False
    trial_ids: frozenset[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data, without the tracking URI, which may contain a password."""
        data = asdict(self)
        del data["tracking_uri"]
        data["trial_ids"] = None if self.trial_ids is None else sorted(self.trial_ids)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], tracking_uri: str) -> "TrackedSweep":
        """Restore the output of :meth:`to_dict`, of a sweep whose runs may exist."""
        ids = data["trial_ids"]
        known = None if ids is None else frozenset(ids)
        return cls(**{**data, "tracking_uri": tracking_uri, "reopen": True, "trial_ids": known})


class SweepRuns:
    """Writer of updates to a sweep's MLflow runs, which it creates or reopens when needed.

    Updates may be repeated in the same order: a report is skipped if the run has one of its step or
    a later one, and everything else is idempotent. Values that MLflow rejects permanently are
    skipped and counted, with one warning in all.

    Args:
        client: MLflow's client, or a substitute.
        sweep: Settings of the runs.
    """

    def __init__(self, client: "MlflowClient", sweep: TrackedSweep) -> None:
        self._client = client
        self._sweep = sweep
        over_http = sweep.tracking_uri.startswith(("http://", "https://", "databricks"))
        self._refusals = Rejections(over_http=over_http)
        self._experiment = self._experiment_id()
        self._open: dict[str, OpenRun] = {}
        self._unsure: set[str] = set()
        self._context_tags: dict[str, str] | None = None
        self._found: dict[str, Run] = {}
        if sweep.reopen:
            self._find()

    @property
    def num_refused(self) -> int:
        """Number of values that MLflow rejected permanently."""
        return self._refusals.num_values

    @property
    def run_ids(self) -> dict[str, str]:
        """MLflow's run ids by trial id or :data:`PARENT`, for the runs found or created."""
        found = {key: run.info.run_id for key, run in self._found.copy().items()}
        return {**found, **{key: run.run_id for key, run in self._open.copy().items()}}

    def run_id_of(self, run: str) -> str | None:
        """Return MLflow's id of a trial's run; None until the run is open."""
        found = self._open.get(run)
        return found.run_id if found else None

    def write(self, entry: RunUpdate) -> None:
        """Write an update, and remove from it the parts written."""
        run = self._run(entry)
        if run.gone:
            self._refusals.note(entry.size, "its run was deleted")
            return
        run.write(entry)
        if entry.trials is not None:
            self._settle(entry.trials, entry.ends)
            entry.trials = None
        run.end(entry)

    def end_running(self) -> list[str]:
        """Mark all running runs as interrupted; return their ids."""
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
        # MLflow would store artifacts in the working directory, even for a database elsewhere.
        folder = path.absolute().parent / "mlruns" / safe_file_name(name)
        return self._client.create_experiment(
            name, artifact_location=folder.as_uri(), tags=_EXPERIMENT_TAGS
        )

    def _search(self, condition: str = "") -> "list[Run]":
        return search_sweep(self._client, self._experiment, self._sweep.sweep_id, condition)

    def _find(self, condition: str = "") -> None:
        """Record existing runs; of two runs of one trial, prefer the one with data."""
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
            # A killed Tune forgot the trial and gave its id to another one.
            self._client.delete_run(run.run_id)
            self._found.pop(entry.run, None)
            del self._open[entry.run]
            run = None
        if run is None:
            run = self._adopt(entry) or self._create(entry)
            self._open[entry.run] = run
        return run

    def _adopt(self, entry: RunUpdate) -> OpenRun | None:
        """Return the existing run of a trial, if any."""
        role = f" AND tags.`{TRIAL_ID_TAG}` = '{entry.run}'" if entry.run else ""
        if entry.run in self._unsure or (entry.run and entry.run not in self._found):
            # A failed creation may have succeeded on the server, or the trial created its run.
            self._find(role)
        run = self._found.get(entry.run)
        if run is not None and entry.fresh and _differ(run.data.params, entry.params):
            # As above; a killed process may have written only part of the parameters.
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
        marker = NUM_ENDED_METRIC if key == PARENT else TIME_TOTAL  # in every report
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
            tags[PARENT_RUN_TAG] = self._open[PARENT].run_id
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
            # Imported late, like MLflow itself.
            from mlflow.tracking.context.registry import resolve_tags

            self._context_tags = mask_all(resolve_tags())
        return self._context_tags

    def _settle(self, trials: frozenset[str], ends: Mapping[str, str]) -> None:
        """Delete duplicate and unknown runs, and end running ones, after a killed driver."""
        saved = self._sweep.trial_ids
        for run in self._search():
            trial_id = run.data.tags.get(TRIAL_ID_TAG)
            if trial_id is None:
                if run.info.run_id != self._open[PARENT].run_id:
                    self._client.delete_run(run.info.run_id)  # created by a call without response
                continue
            own = self._open.get(trial_id)
            known = trial_id in trials or trial_id in (saved or ())
            ended = STOP_REASON_TAG in run.data.tags
            double = own is not None and own.run_id != run.info.run_id
            if double or (not known and not (saved is None and ended)):
                self._client.delete_run(run.info.run_id)
            elif run.info.status == "RUNNING":
                self._interrupt(run, outcome=Outcome(ends.get(trial_id, "interrupted")))


def _differ(known: Mapping[str, str], params: Mapping[str, str]) -> bool:
    return any(known.get(key, value) != value for key, value in params.items())


def search_sweep(
    client: "MlflowClient", experiment_id: str, sweep_id: str, condition: str = ""
) -> "list[Run]":
    """Return a sweep's runs, the oldest first."""
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs(
            [experiment_id],
            f"tags.`{SWEEP_ID_TAG}` = '{sweep_id}'{condition}",
            max_results=_PAGE,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        runs.extend(page)
        token = page.token
        if not token:
            return runs


def find_run_ids(client: "MlflowClient", experiment_name: str, sweep_id: str) -> dict[str, str]:
    """Return MLflow's ids of a sweep's runs, by trial id or :data:`PARENT`.

    The result is empty if the experiment does not exist.
    """
    experiment = client.get_experiment_by_name(experiment_name)
    found: dict[str, str] = {}
    if experiment is not None:
        for run in search_sweep(client, experiment.experiment_id, sweep_id):
            found.setdefault(run.data.tags.get(TRIAL_ID_TAG, PARENT), run.info.run_id)
    return found
