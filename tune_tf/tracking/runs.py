"""MLflow runs of a sweep: which there are, new ones, and what they lack."""

import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tune_tf.secrets import mask_all, mask_secrets
from tune_tf.tracking.environment import git_commit
from tune_tf.tracking.names import MAX_RUN_NAME_LENGTH, one_line
from tune_tf.tracking.run_content import RUNNING, Point, RunContent
from tune_tf.tracking.store import connect, sqlite_path
from tune_tf.tracking.tags import (
    END_TAGS,
    PARENT,
    PARENT_RUN_TAG,
    RUN_TAG,
    SWEEP_ID_TAG,
    TRIAL_ID_TAG,
    run_tag,
)
from tune_tf.tracking.tracked_sweep import TrackedSweep

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_logger = logging.getLogger(__name__)

_PAGE = 1000
_GIT_COMMIT = "mlflow.source.git.commit"
_PERMANENT = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"})
# Selects the view in MLflow.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


class RunGoneError(Exception):
    """A run, or its experiment, was deleted: the runs of the sweep have to be looked up again."""


@dataclass
class OpenRun:
    """A run in MLflow, and what it has, as far as known.

    Args:
        tests: Points with metrics on the test rows that were sent.
        artifacts: Paths of those that were sent.
    """

    run_id: str
    status: str = RUNNING
    end_ms: int | None = None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    has_dataset: bool = False
    tests: Sequence[Point] = ()
    artifacts: set[str] = field(default_factory=set)

    def has_ended_as(self, content: RunContent) -> bool:
        """Return whether it has that end already, and so all points from before."""
        right_time = content.end_ms is None or content.end_ms == self.end_ms
        return content.status != RUNNING and content.status == self.status and right_time


class SweepRuns:
    """MLflow runs of a sweep.

    What is sent again is there once: points have the times of the record, and everything else
    replaces itself. A killed process leaves at most a run without content, which is found by its
    tags. Values that MLflow rejects for good are left out, with one warning in all.

    Attributes:
        num_calls: Number of calls that wrote something.
        num_refused: Number of values that MLflow rejected.
    """

    def __init__(self, sweep: TrackedSweep) -> None:
        self.num_calls = self.num_refused = 0
        self._sweep = sweep
        self._client: MlflowClient
        self._experiment: str
        self._dataset: Mapping[str, str] | None = None
        self._over_http = sweep.tracking_uri.startswith(("http://", "https://", "databricks"))
        self._doubtful: set[str] = set()

    def find(
        self, dataset: Mapping[str, str] | None, noted: Collection[str | None] = ()
    ) -> dict[str, OpenRun]:
        """Open the store; return the runs that there are, by trial id or :data:`PARENT`.

        Of two for one trial, as after a deleted one was restored, that of the ``noted`` ids is
        kept, and the other one deleted. ``dataset`` has the fields of MLflow's ``Dataset``, if the
        sweep's data are known.
        """
        self._dataset = dataset
        self._client = connect(self._sweep.tracking_uri)
        self._experiment = self._experiment_id()
        condition = f"tags.`{SWEEP_ID_TAG}` = '{self._sweep.sweep_id}'"
        found: dict[str, OpenRun] = {}
        runs = [_open(run) for run in self._search(condition)]
        for run in sorted(runs, key=lambda run: run.run_id not in noted):
            key = run.tags.get(TRIAL_ID_TAG, PARENT)
            if found.setdefault(key, run) is not run:
                self.delete(run)
        return found

    def create(self, key: str, content: RunContent, parent_id: str | None = None) -> OpenRun:
        """Make the run of a trial, or with :data:`PARENT` that of the sweep."""
        tag = run_tag(self._sweep.sweep_id, key)
        if key in self._doubtful:  # it may have been made without an answer
            found = self._search(f"tags.`{RUN_TAG}` = '{tag}'")
            if found:
                return _open(found[0])
        tags = {**self._context_tags, **self._sweep.tags}
        tags |= {SWEEP_ID_TAG: self._sweep.sweep_id, RUN_TAG: tag}
        if parent_id is not None:
            tags |= {TRIAL_ID_TAG: key, PARENT_RUN_TAG: parent_id}
        name = one_line(mask_secrets(content.name), MAX_RUN_NAME_LENGTH)
        self._doubtful.add(key)
        try:
            run = self._client.create_run(
                self._experiment, start_time=content.start_ms, tags=mask_all(tags), run_name=name
            )
        except Exception as error:
            if self._is_permanent(error):
                raise RunGoneError(mask_secrets(str(error))) from error
            raise
        self._doubtful.discard(key)
        self.num_calls += 1
        return _open(run)

    def delete(self, run: OpenRun) -> None:
        """Delete a run."""
        self._client.delete_run(run.run_id)

    def send(self, run: OpenRun, content: RunContent) -> None:
        """Send what a run lacks: first its values, then its end, then its artifacts.

        Raises:
            RunGoneError: The run was deleted.
        """
        if content.status == RUNNING != run.status:
            self._call(run, partial(self._client.update_run, run.run_id, status=RUNNING))
            run.status, run.end_ms = RUNNING, None
        self._send_dataset(run)
        self._send_values(run, content)
        if content.status != RUNNING and not run.has_ended_as(content):
            end = partial(self._client.set_terminated, run.run_id, content.status, content.end_ms)
            self._call(run, end)
            run.status, run.end_ms = content.status, content.end_ms
        for path in content.texts.keys() - run.artifacts:
            text = mask_secrets(content.texts[path])
            self._call(run, partial(self._client.log_text, run.run_id, text, path))
            run.artifacts.add(path)
        for path in content.files.keys() - run.artifacts:
            folder = path.rpartition("/")[0] or None
            file = str(content.files[path])
            self._call(run, partial(self._client.log_artifact, run.run_id, file, folder))
            run.artifacts.add(path)

    def _send_values(self, run: OpenRun, content: RunContent) -> None:
        for key in (set(END_TAGS) & run.tags.keys()) - content.tags.keys():  # it goes on
            # MLflow refuses what it did at an earlier call that it has not answered.
            self._error(run, partial(self._client.delete_tag, run.run_id, key))
            del run.tags[key]
        params = {key: each for key, each in content.params.items() if key not in run.params}
        params = mask_all(params) if params else {}
        tags = mask_all(content.tags)
        tags = {key: text for key, text in tags.items() if run.tags.get(key) != text}
        tests = content.tests if content.tests != run.tests else ()
        self._log(run, _batch(params, [*content.points, *tests], tags))
        run.params |= params
        run.tags |= tags
        run.tests = content.tests

    def _log(self, run: OpenRun, batch: Mapping[str, list[Any]]) -> None:
        """Log a batch; if MLflow rejects it for good, all but the rejected values."""
        count = sum(map(len, batch.values()))
        if not count:
            return
        error = self._error(run, partial(self._client.log_batch, run.run_id, **batch))
        if error is not None and count == 1:
            self._refuse(error)
        elif error is not None:
            for part in _halves(batch):
                self._log(run, part)

    def _call(self, run: OpenRun, call: Callable[[], object]) -> None:
        """Make a call that writes one value; leave out a value that MLflow rejects for good."""
        if (error := self._error(run, call)) is not None:
            self._refuse(error)

    def _error(self, run: OpenRun, call: Callable[[], object]) -> Exception | None:
        """Make a call; return the error if MLflow rejects it for good.

        Raises:
            RunGoneError: The run was deleted.
        """
        try:
            call()
        except Exception as error:
            if not self._is_permanent(error):
                raise
            self._check_there(run)
            return error
        self.num_calls += 1
        return None

    def _refuse(self, error: Exception) -> None:
        if not self.num_refused:
            _logger.warning(
                "MLflow rejected a value, which is left out of its runs: %s",
                mask_secrets(str(error)),
            )
        self.num_refused += 1

    def _is_permanent(self, error: Exception) -> bool:
        """Return whether MLflow itself raised an error that it would raise again."""
        from mlflow.exceptions import RestException

        # Over HTTP, a proxy may respond for a server that is starting.
        is_mlflows = not self._over_http or isinstance(error, RestException)
        return is_mlflows and getattr(error, "error_code", None) in _PERMANENT

    def _check_there(self, run: OpenRun) -> None:
        """Raise RunGoneError if a run was deleted."""
        try:
            stage = self._client.get_run(run.run_id).info.lifecycle_stage
        except Exception as error:
            if not self._is_permanent(error):
                raise
            stage = "deleted"
        if stage == "deleted":
            raise RunGoneError(f"the run {run.run_id} was deleted")

    def _send_dataset(self, run: OpenRun) -> None:
        """Log the sweep's data set as an input of a run."""
        if run.has_dataset or self._dataset is None:
            return
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset, tag = Dataset(**self._dataset), InputTag("mlflow.data.context", "training")
        inputs = [DatasetInput(dataset, [tag])]
        self._call(run, partial(self._client.log_inputs, run.run_id, inputs))
        run.has_dataset = True

    def _search(self, condition: str) -> "list[Run]":
        runs: list[Run] = []
        token = None
        while token != "":
            page = self._client.search_runs(
                [self._experiment],
                condition,
                max_results=_PAGE,
                order_by=["attributes.start_time DESC"],  # of two, the first one counts
                page_token=token,
            )
            runs.extend(page)
            token = page.token or ""
        return runs

    def _experiment_id(self) -> str:
        name = self._sweep.experiment_name
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            if experiment.lifecycle_stage == "deleted":
                self._client.restore_experiment(experiment.experiment_id)
                _logger.warning("the MLflow experiment %r was deleted: it is restored", name)
            return experiment.experiment_id
        path = sqlite_path(self._sweep.tracking_uri)
        if path is None or path.absolute().parent == Path.cwd():
            return self._client.create_experiment(name, tags=_EXPERIMENT_TAGS)
        # MLflow would store artifacts in the working directory, even for a database elsewhere.
        folder = path.absolute().parent / "mlruns" / uuid.uuid4().hex
        return self._client.create_experiment(
            name, artifact_location=folder.as_uri(), tags=_EXPERIMENT_TAGS
        )

    @cached_property
    def _context_tags(self) -> dict[str, str]:
        """Tags that ``mlflow.start_run`` would set, and the commit where MLflow finds none."""
        # Imported late, like MLflow itself.
        from mlflow.tracking.context.registry import resolve_tags

        tags = resolve_tags()
        if _GIT_COMMIT not in tags and (commit := git_commit()):
            tags[_GIT_COMMIT] = commit
        return tags


def _open(run: "Run") -> OpenRun:
    info, data = run.info, run.data
    return OpenRun(
        info.run_id,
        info.status,
        info.end_time,
        dict(data.params),
        dict(data.tags),
        bool(run.inputs and run.inputs.dataset_inputs),
    )


def _batch(
    params: Mapping[str, str], points: Sequence[Point], tags: Mapping[str, str]
) -> dict[str, list[Any]]:
    """Return the arguments of ``log_batch``, without empty ones."""
    from mlflow.entities import Metric, Param, RunTag

    batch: dict[str, list[Any]] = {
        "params": [Param(key, value) for key, value in params.items()],
        "metrics": [
            Metric(key, value, point.time_ms, point.step)
            for point in points
            for key, value in point.metrics.items()
        ],
        "tags": [RunTag(key, value) for key, value in tags.items()],
    }
    return {kind: values for kind, values in batch.items() if values}


def _halves(batch: Mapping[str, list[Any]]) -> list[dict[str, list[Any]]]:
    """Split a batch by kind, or a batch of one kind into halves."""
    if len(batch) > 1:
        return [{kind: values} for kind, values in batch.items()]
    [(kind, values)] = batch.items()
    middle = len(values) // 2
    return [{kind: values[:middle]}, {kind: values[middle:]}]
