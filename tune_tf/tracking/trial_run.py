"""The MLflow run of a trial, for the user's code that runs inside the trial.

The driver makes the run and writes its parameters, metrics and status. What the user's code adds
(figures, files, text, tags) goes to the same run, from whatever node the trial is on.
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
_HTTP = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}  # a trial has no queue to try again from


class TrialRun:
    """The MLflow run of a trial that is training in this process.

    Every method writes to that run. As a context manager it also is where MLflow's fluent calls of
    this thread go to (``mlflow.log_figure`` and the like). Neither ends the run, nor changes its
    status: the sweep does that. Errors of the store reach the caller.

    Args:
        client: MLflow's client of the store.
        tracking_uri: The store; may hold a password.
        run_id: MLflow's id of the run.
    """

    def __init__(self, client: "MlflowClient", tracking_uri: str, run_id: str) -> None:
        self.client = client
        self.tracking_uri = tracking_uri
        self.run_id = run_id
        self._entered: list[contextlib.ExitStack] = []

    def __repr__(self) -> str:
        """Tell the run, and nothing of how to reach the store."""
        return f"TrialRun(run_id={self.run_id!r})"

    def log_figure(self, figure: Any, artifact_file: str) -> None:
        """Save a Matplotlib or Plotly figure; the file's name says in which format."""
        self.client.log_figure(self.run_id, figure, artifact_file)

    def log_artifact(self, local_path: str | Path, artifact_path: str | None = None) -> None:
        """Copy a file into the run, into a folder of it if ``artifact_path`` names one."""
        self.client.log_artifact(self.run_id, str(local_path), artifact_path)

    def log_artifacts(self, local_dir: str | Path, artifact_path: str | None = None) -> None:
        """Copy what a folder holds into the run."""
        self.client.log_artifacts(self.run_id, str(local_dir), artifact_path)

    def log_text(self, text: str, artifact_file: str) -> None:
        """Save a text as a file of the run."""
        self.client.log_text(self.run_id, text, artifact_file)

    def log_dict(self, dictionary: Mapping[str, Any], artifact_file: str) -> None:
        """Save a mapping as JSON or YAML, as the file's name says."""
        self.client.log_dict(self.run_id, dict(dictionary), artifact_file)

    def log_image(self, image: Any, artifact_file: str) -> None:
        """Save an image: an array of shape [H, W], [H, W, 1], [H, W, 3] or [H, W, 4], or PIL's."""
        self.client.log_image(self.run_id, image, artifact_file)

    def log_table(self, data: Any, artifact_file: str) -> None:
        """Save a table, a mapping of columns or pandas' frame; rows are added to those there."""
        self.client.log_table(self.run_id, data, artifact_file)

    def set_tag(self, key: str, value: Any) -> None:
        """Set a tag of the run.

        Raises:
            InvalidSettingsError: The sweep keeps the tag for itself.
        """
        if key.startswith(_RESERVED):
            raise InvalidSettingsError(
                [f"tag {key!r} is one that the sweep writes: choose a name without {_RESERVED!r}"]
            )
        self.client.set_tag(self.run_id, key, value)

    def __enter__(self) -> Self:
        """Send MLflow's fluent calls of this thread to the run."""
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
        """Send them where they went before; the run goes on."""
        self._entered.pop().close()


@dataclass
class _Trial:
    """The trial of this process.

    Args:
        trial_id: Ray Tune's id.
        tracking: Where its run is; None if it has none.
        starting: Whether it is still starting: then the driver does not know of it yet.
        run_id: MLflow's id of the run, once it is found.
        own_store: Whether the store is of this process alone, and the run is to be made there.
    """

    trial_id: str
    tracking: TrialTracking | None
    starting: bool = False
    run_id: str | None = None
    own_store: bool = False


class _Process:
    """What trains in this process: one trial at a time, in whatever thread its code runs."""

    trial: _Trial | None = None


_PROCESS = _Process()


def enter_trial(trial_id: str, tracking: TrialTracking | None, *, starting: bool = False) -> None:
    """Say that a trial's code runs in this process from here on.

    Args:
        trial_id: Ray Tune's id.
        tracking: Where its run is; None if it has none.
        starting: Whether this is the code that Ray Tune waits for before the trial has started.
    """
    trial = _PROCESS.trial
    if trial is None or (trial.trial_id, trial.tracking) != (trial_id, tracking):
        _PROCESS.trial = _Trial(trial_id, tracking, starting)
    else:
        trial.starting = starting


def leave_trial() -> None:
    """Say that the trial has ended."""
    _PROCESS.trial = None


@contextlib.contextmanager
def throwaway_run() -> Iterator[None]:
    """Give a workload's code that runs outside trials a run that is thrown away.

    For building a trial's model once more, to export it or to look at it: code that writes to the
    run of its trial works, and what it writes is not wanted again.
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
    """Return the MLflow run of the trial whose code calls this.

    For ``load_data``, ``build_model``, ``train_step`` and callbacks of a workload::

        run = tune_tf.mlflow_run()
        run.log_figure(figure, "confusion.png")
        with run:
            mlflow.log_text("...", "notes.txt")

    The sweep makes the run a moment after the trial has started; this waits for it. The first call
    in a process loads MLflow, which takes seconds. Inside a ``tf.function``, as ``train_step`` is,
    it is called while the function is traced, not for every batch.

    Args:
        timeout_s: Seconds to wait for the run.
        clock: Seconds that only grow.
        sleep: Waits for some seconds.

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
