"""MLflow runs of a sweep, opened in the writer's thread, since that takes seconds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.outcome import Outcome
from tune_tf.secrets import mask_all
from tune_tf.tracking.environment import git_commit
from tune_tf.tracking.names import EXPLOITS, NUM_ENDED_METRIC, TIME_TOTAL, safe_file_name
from tune_tf.tracking.store import sqlite_path
from tune_tf.tracking.writing.open_run import NO_POINT, MetricPoint, OpenRun, Rejections
from tune_tf.tracking.writing.run_update import (
    CREATED_BY_TRIAL_TAG,
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
_GIT_COMMIT = "mlflow.source.git.commit"
# Selects the view in MLflow.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


@dataclass(frozen=True)
class TrackedSweep:
    """Settings of all MLflow runs of a sweep."""

    sweep_id: str  # tag shared by the runs
    tracking_uri: str
    experiment_name: str  # created if missing
    tags: Mapping[str, str] = field(default_factory=dict)
    reopen: bool = False  # whether runs of this sweep may exist already
    trial_ids: frozenset[str] | None = None
    """Trials with a run at the last save of the sweep; None if it was never saved."""
    dataset: Mapping[str, str] | None = None  # fields of MLflow's Dataset

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data, without the tracking URI, which may contain a password."""
        data = asdict(self)
        del data["tracking_uri"]
        data["trial_ids"] = None if self.trial_ids is None else sorted(self.trial_ids)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], tracking_uri: str) -> "TrackedSweep":
        """Restore the output of :meth:`to_dict`, of a sweep whose runs may exist."""
        trial_ids = None if data["trial_ids"] is None else frozenset(data["trial_ids"])
        changes = {"tracking_uri": tracking_uri, "reopen": True, "trial_ids": trial_ids}
        return cls(**{**data, **changes})


class SweepRuns:
    """Writer of updates to a sweep's MLflow runs, which it creates or reopens when needed.

    Updates may be repeated in the same order: a report is skipped if the run has one of its step or
    a later one, and everything else is idempotent. Values that MLflow rejects permanently are
    skipped and counted, with one warning in all.
    """

    def __init__(self, client: "MlflowClient", sweep: TrackedSweep) -> None:
        self._client = client
        self._sweep = sweep
        over_http = sweep.tracking_uri.startswith(("http://", "https://", "databricks"))
        self._rejections = Rejections(over_http=over_http)
        self._experiment = self._experiment_id()
        self._open: dict[str, OpenRun] = {}
        self._maybe_created: set[str] = set()
        self._existing: dict[str, Run] = {}
        if sweep.reopen:
            self._find()

    @property
    def num_refused(self) -> int:
        """Number of values that MLflow rejected permanently."""
        return self._rejections.num_values

    @property
    def run_ids(self) -> dict[str, str]:
        """MLflow's run ids by trial id or :data:`PARENT`, for the runs found or created."""
        existing = {key: run.info.run_id for key, run in self._existing.copy().items()}
        return existing | {key: run.run_id for key, run in self._open.copy().items()}

    def run_id_of(self, run: str) -> str | None:
        """Return MLflow's id of a trial's run; None until the run is open."""
        open_run = self._open.get(run)
        return open_run.run_id if open_run else None

    def write(self, update: RunUpdate) -> None:
        """Write an update, and remove from it the parts written."""
        run = self._run(update)
        if run.is_deleted:
            self._rejections.count(update.size, "its run was deleted")
            return
        run.write(update)
        if update.trials is not None:
            self._reconcile(update.trials, update.ends)
            update.trials = None
        run.end(update)

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
        """Return the sweep's runs, the oldest first; with a condition, only those that meet it.

        SQLite looks up the second tag only where the first one matches, so the condition precedes.
        """
        of_sweep = f"tags.`{SWEEP_ID_TAG}` = '{self._sweep.sweep_id}'"
        runs: list[Run] = []
        token = None
        while token != "":
            page = self._client.search_runs(
                [self._experiment],
                f"{condition} AND {of_sweep}" if condition else of_sweep,
                max_results=_PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            runs.extend(page)
            token = page.token or ""
        return runs

    def _find(self, condition: str = "") -> None:
        """Record existing runs; of two runs of one trial, prefer the one with data."""
        for run in self._search(condition):
            key = run.data.tags.get(TRIAL_ID_TAG, PARENT)
            other = self._existing.get(key)
            if other is None or not (other.data.metrics or other.data.params):
                self._existing[key] = run

    def _run(self, update: RunUpdate) -> OpenRun:
        if update.run != PARENT and PARENT not in self._open:
            self._run(RunUpdate(PARENT, update.time_ms))
        run = self._open.get(update.run)
        if run is not None and update.fresh and _differ(run.params, update.params):
            # A killed Tune forgot the trial and gave its id to another one.
            self._client.delete_run(run.run_id)
            self._existing.pop(update.run, None)
            del self._open[update.run]
            run = None
        if run is None:
            run = self._adopt(update) or self._create(update)
            self._open[update.run] = run
        return run

    def _adopt(self, update: RunUpdate) -> OpenRun | None:
        """Return the existing run of a trial, if any."""
        condition = f"tags.`{TRIAL_ID_TAG}` = '{update.run}'" if update.run else ""
        if update.run in self._maybe_created:  # a failed creation may have succeeded on the server
            self._find(condition)
        elif update.run and update.run not in self._existing:
            self._find(f"tags.`{CREATED_BY_TRIAL_TAG}` = '{update.run}'")
        run = self._existing.get(update.run)
        if run is not None and update.fresh and _differ(run.data.params, update.params):
            # As above; a killed process may have written only part of the parameters.
            self._client.delete_run(run.info.run_id)
            del self._existing[update.run]
            self._find(condition)
            run = self._existing.get(update.run)
        if run is None:
            return None
        if not (run.inputs and run.inputs.dataset_inputs):
            self._log_dataset(run.info.run_id)
        tags = {**self._context_tags, **self._sweep.tags}
        missing = {name: text for name, text in tags.items() if name not in run.data.tags}
        update.tags = {**missing, **update.tags}
        last, last_ms = self._last_report(update.run, run)
        info, params = run.info, dict(run.data.params)
        return OpenRun(
            self._client, self._rejections, info.run_id, info.status, params, last, last_ms
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

    def _create(self, update: RunUpdate) -> OpenRun:
        tags = {**self._context_tags, **self._sweep.tags, SWEEP_ID_TAG: self._sweep.sweep_id}
        if update.run != PARENT:
            tags[TRIAL_ID_TAG] = update.run
            tags[PARENT_RUN_TAG] = self._open[PARENT].run_id
        self._maybe_created.add(update.run)
        run = self._client.create_run(
            self._experiment, start_time=update.time_ms, tags=tags, run_name=update.name
        )
        self._log_dataset(run.info.run_id)
        self._maybe_created.discard(update.run)
        update.name = None
        return OpenRun(self._client, self._rejections, run.info.run_id)

    def _log_dataset(self, run_id: str) -> None:
        """Log the sweep's data set as an input of a run, unless MLflow rejects it for good."""
        if self._sweep.dataset is None:
            return
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(**self._sweep.dataset)
        inputs = [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])]
        try:
            self._client.log_inputs(run_id, inputs)
        except Exception as error:
            if not self._rejections.is_permanent(error):
                raise
            self._rejections.count(1, error)

    @cached_property
    def _context_tags(self) -> dict[str, str]:
        """Tags that ``mlflow.start_run`` would set, and the commit where MLflow finds none."""
        # Imported late, like MLflow itself.
        from mlflow.tracking.context.registry import resolve_tags

        tags = resolve_tags()
        if _GIT_COMMIT not in tags and (commit := git_commit()):
            tags[_GIT_COMMIT] = commit
        return mask_all(tags)

    def _reconcile(self, trials: frozenset[str], ends: Mapping[str, str]) -> None:
        """Delete duplicate and unknown runs, and end running ones, after a killed driver."""
        saved = self._sweep.trial_ids
        for run in self._search():
            trial_id = run.data.tags.get(TRIAL_ID_TAG)
            if trial_id is None:
                if run.info.run_id != self._open[PARENT].run_id:
                    self._client.delete_run(run.info.run_id)  # created by a call without response
                continue
            open_run = self._open.get(trial_id)
            is_duplicate = open_run is not None and open_run.run_id != run.info.run_id
            is_known = trial_id in trials or trial_id in (saved or ())
            has_ended = STOP_REASON_TAG in run.data.tags
            if is_duplicate or (not is_known and not (saved is None and has_ended)):
                self._client.delete_run(run.info.run_id)
            elif run.info.status == "RUNNING":
                outcome = Outcome(ends.get(trial_id, "interrupted"))
                self._client.set_tag(run.info.run_id, STOP_REASON_TAG, outcome.value)
                self._client.set_terminated(run.info.run_id, outcome.mlflow)


def _differ(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return any(old.get(key, value) != value for key, value in new.items())
