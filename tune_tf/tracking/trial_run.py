"""MLflow run of a trial, for user code inside the trial.

The driver creates the run and writes its parameters, metrics and status; user code can add figures,
files, text and tags from any node.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tune_tf.errors import InvalidSettingsError
from tune_tf.tracking.mlflow_internals import active_run
from tune_tf.tracking.runs import connect
from tune_tf.tracking.trial_tracking import NoTrialRunError, TrialTracking, trial_run_id
from tune_tf.tracking.uri import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

_RESERVED = "tune_tf."
_HTTP = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}  # a trial has no queue that retries


class TrialRun:
    """MLflow run of the trial that trains in this process.

    As a context manager, it receives the fluent MLflow calls of this thread (``mlflow.log_figure``
    etc.). It never ends the run or changes its status, which is up to the sweep. Errors of the
    store reach the caller.

    Args:
        client: MLflow's client of the store.
        tracking_uri: The store; may contain a password.
        run_id: MLflow's id of the run.
    """

    def __init__(self, client: "MlflowClient", tracking_uri: str, run_id: str) -> None:
        self.client = client
        self.tracking_uri = tracking_uri
        self.run_id = run_id
        self._entered: list[contextlib.ExitStack] = []

    def __repr__(self) -> str:
        """Return the run id only: the store's URI may contain a password."""
        return f"TrialRun(run_id={self.run_id!r})"

    def log_figure(self, figure: Any, artifact_file: str) -> None:
        """Log a Matplotlib or Plotly figure, in the format of the file extension."""
        self.client.log_figure(self.run_id, figure, artifact_file)

    def log_artifact(self, local_path: str | Path, artifact_path: str | None = None) -> None:
        """Log a file, in the artifact folder ``artifact_path`` if given."""
        self.client.log_artifact(self.run_id, str(local_path), artifact_path)

    def log_artifacts(self, local_dir: str | Path, artifact_path: str | None = None) -> None:
        """Log the contents of a folder."""
        self.client.log_artifacts(self.run_id, str(local_dir), artifact_path)

    def log_text(self, text: str, artifact_file: str) -> None:
        """Log a text as a file."""
        self.client.log_text(self.run_id, text, artifact_file)

    def log_dict(self, dictionary: Mapping[str, Any], artifact_file: str) -> None:
        """Log a mapping as JSON or YAML, by the file extension."""
        self.client.log_dict(self.run_id, dict(dictionary), artifact_file)

    def log_image(self, image: Any, artifact_file: str) -> None:
        """Log a PIL image or an array of shape [H, W], [H, W, 1], [H, W, 3] or [H, W, 4]."""
        self.client.log_image(self.run_id, image, artifact_file)

    def log_table(self, data: Any, artifact_file: str) -> None:
        """Log a mapping of columns or a pandas DataFrame; append to an existing table."""
        self.client.log_table(self.run_id, data, artifact_file)

    def set_tag(self, key: str, value: Any) -> None:
        """Set a tag of the run.

        Raises:
            InvalidSettingsError: The tag is reserved for the sweep.
        """
        if key.startswith(_RESERVED):
            raise InvalidSettingsError(
                [f"tag {key!r} is reserved for the sweep: choose a name without {_RESERVED!r}"]
            )
        self.client.set_tag(self.run_id, key, value)

    def __enter__(self) -> Self:
        """Activate the run for fluent MLflow calls of this thread."""
        with contextlib.ExitStack() as stack:
            run = self.client.get_run(self.run_id)
            stack.enter_context(active_run(run, self.tracking_uri))
            self._entered.append(stack.pop_all())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the previous active run without ending this one."""
        self._entered.pop().close()


@dataclass
class _Trial:
    """Trial of this process.

    Args:
        trial_id: Tune's id.
        tracking: Tracking settings; None if the sweep is not tracked.
        starting: Whether the trial is still starting, so that the driver has not created its run.
        run_id: MLflow's id of the run, once found.
        own_store: Whether the run is in a temporary store, where this process creates it.
    """

    trial_id: str
    tracking: TrialTracking | None
    starting: bool = False
    run_id: str | None = None
    own_store: bool = False


class _Process:
    """Current trial of this process, for all threads."""

    trial: _Trial | None = None


_PROCESS = _Process()


def enter_trial(trial_id: str, tracking: TrialTracking | None, *, starting: bool = False) -> None:
    """Set the trial of this process; ``starting`` if Tune is still waiting for its start."""
    trial = _PROCESS.trial
    if trial is None or (trial.trial_id, trial.tracking) != (trial_id, tracking):
        _PROCESS.trial = _Trial(trial_id, tracking, starting)
    else:
        trial.starting = starting


def leave_trial() -> None:
    """Unset the trial of this process."""
    _PROCESS.trial = None


@contextlib.contextmanager
def throwaway_run() -> Iterator[None]:
    """Provide a temporary MLflow run to workload code outside trials.

    Used to rebuild a trial's model for export or inspection: code that logs to its trial's run
    works, and the logged data is discarded.
    """
    before = _PROCESS.trial
    with tempfile.TemporaryDirectory(prefix="tune_tf-") as folder:
        tracking = TrialTracking(f"sqlite:///{folder}/mlflow.db", "throwaway", "throwaway")
        _PROCESS.trial = _Trial("throwaway", tracking, own_store=True)
        try:
            yield
        finally:
            _PROCESS.trial = before


def mlflow_run(
    timeout_s: float = 60.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> TrialRun:
    """Return the MLflow run of the current trial.

    For ``load_data``, ``build_model``, ``train_step`` and callbacks of a workload::

        run = tune_tf.mlflow_run()
        run.log_figure(figure, "confusion.png")
        with run:
            mlflow.log_text("...", "notes.txt")

    The call waits up to ``timeout_s`` seconds for the run, which the sweep creates shortly after
    the trial starts. The first call in a process loads MLflow, which takes seconds. Inside a
    ``tf.function`` such as ``train_step``, the call runs during tracing, not for every batch.

    Raises:
        NoTrialRunError: No trial runs here, the sweep is not tracked, or the run cannot be found.
    """
    trial = _PROCESS.trial
    if trial is None:
        raise NoTrialRunError(
            "tune_tf.mlflow_run() is for code that runs inside a trial: call it in load_data, "
            "build_model, train_step or a callback of a workload, while a sweep trains it"
        )
    if trial.tracking is None:
        raise NoTrialRunError(
            f"trial {trial.trial_id} is not tracked, so it has no MLflow run: give the sweep file "
            "an mlflow section, or tune_tf.trainable the tracking of your MLflowCallback"
        )
    tracking = trial.tracking
    for name, value in {**tracking.credentials, **_HTTP}.items():
        os.environ.setdefault(name, value)
    if trial.own_store and trial.run_id is None:
        trial.run_id = _made_in_own_store(tracking)
    if trial.run_id is None:
        trial.run_id = trial_run_id(
            trial.trial_id,
            tracking,
            starting=trial.starting,
            timeout_s=timeout_s,
            clock=clock,
            sleep=sleep,
        )
    return TrialRun(connect(tracking.tracking_uri), tracking.tracking_uri, trial.run_id)


def _made_in_own_store(tracking: TrialTracking) -> str:
    client = connect(tracking.tracking_uri)
    path = sqlite_path(tracking.tracking_uri)
    files = None if path is None else path.with_name("artifacts").as_uri()
    experiment = client.create_experiment(tracking.experiment_name, artifact_location=files)
    return client.create_run(experiment).info.run_id
