"""MLflow run of a trial, for user code inside the trial: figures, files, texts and tags."""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from tune_tf.errors import InvalidSettingsError, TuneTfError
from tune_tf.tracking.mlflow_internals import active_run
from tune_tf.tracking.store import check_names, connect, sqlite_path
from tune_tf.tracking.tags import RUN_TAG, run_tag

if TYPE_CHECKING:
    from mlflow import MlflowClient

_HTTP = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3"}  # a trial has no queue that retries
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class NoTrialRunError(TuneTfError, RuntimeError):
    """Missing MLflow run of a trial: tracking is off, or the store is unreachable."""


@dataclass(frozen=True)
class TrialTracking:
    """Tracking settings of a sweep for the processes of its trials."""

    tracking_uri: str = field(repr=False)
    experiment_name: str
    sweep_id: str
    system_metrics: bool = True  # whether to report the load of machine and process
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """MLflow's environment variables for user, password or token, set where they are missing."""

    def __post_init__(self) -> None:
        """Validate the values that identify a run."""
        check_names(self.experiment_name, self.sweep_id or "")
        if not self.tracking_uri:
            raise InvalidSettingsError("tracking_uri must not be empty")


@dataclass(eq=False)
class TrialRun:
    """MLflow run of the trial that trains in this process.

    As a context manager, it receives the fluent MLflow calls of this thread (``mlflow.log_figure``
    etc.); ``client`` with ``run_id`` reaches it from any thread. It never ends the run or changes
    its status, which is up to the sweep. Errors of the store reach the caller.
    """

    client: "MlflowClient" = field(repr=False)
    tracking_uri: str = field(repr=False)  # may contain a password
    run_id: str
    _contexts: list[ExitStack] = field(default_factory=list, init=False, repr=False)

    def __enter__(self) -> Self:
        """Activate the run for fluent MLflow calls of this thread."""
        stack = ExitStack()
        stack.enter_context(active_run(self.client.get_run(self.run_id), self.tracking_uri))
        self._contexts.append(stack)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous active run without ending this one."""
        self._contexts.pop().close()


@dataclass
class _Trial:
    trial_id: str
    tracking: TrialTracking | None  # None if the sweep is not tracked
    own_store: bool = False  # a temporary store, where this process creates the run
    run_id: str | None = None


class _Process:
    """Current trial of this process, for all threads."""

    trial: _Trial | None = None


def enter_trial(trial_id: str, tracking: TrialTracking | None) -> None:
    """Set the trial of this process."""
    trial = _Process.trial
    if trial is None or (trial.trial_id, trial.tracking) != (trial_id, tracking):
        _Process.trial = _Trial(trial_id, tracking)


def leave_trial() -> None:
    """Unset the trial of this process."""
    _Process.trial = None


@contextmanager
def throwaway_run() -> Iterator[None]:
    """Provide a temporary MLflow run to workload code that rebuilds a model outside trials."""
    before = _Process.trial
    with tempfile.TemporaryDirectory(prefix="tune_tf-") as folder:
        tracking = TrialTracking(f"sqlite:///{folder}/mlflow.db", "throwaway", "throwaway")
        _Process.trial = _Trial("throwaway", tracking, own_store=True)
        try:
            yield
        finally:
            _Process.trial = before


def mlflow_run(
    timeout_s: float = 60.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> TrialRun:
    """Return the MLflow run of the current trial.

    For ``load_data``, ``build_model``, ``train_step`` and callbacks of a workload::

        with tune_tf.mlflow_run():
            mlflow.log_figure(figure, "confusion.png")

    The call waits up to ``timeout_s`` seconds for the run, which the sweep creates shortly after
    Tune has made the trial. The first call in a process loads MLflow, which takes seconds. Inside a
    ``tf.function`` such as ``train_step``, the call runs during tracing, not for every batch.

    Raises:
        NoTrialRunError: No trial runs here, the sweep is not tracked, or the run cannot be found.
    """
    trial = _Process.trial
    if trial is None:
        raise NoTrialRunError(
            "tune_tf.mlflow_run() is for code that runs inside a trial: call it in load_data, "
            "build_model, train_step or a callback of a workload, while a sweep trains it"
        )
    tracking = trial.tracking
    if tracking is None:
        raise NoTrialRunError(
            f"trial {trial.trial_id} is not tracked, so it has no MLflow run: give the sweep file "
            "an mlflow section, or tune_tf.trainable the tracking of your MLflowCallback"
        )
    for name, value in {**tracking.credentials, **_HTTP}.items():
        os.environ.setdefault(name, value)
    if trial.own_store and trial.run_id is None:
        trial.run_id = _create_in_own_store(tracking)
    end = clock() + timeout_s
    pauses_s = chain(_PAUSES_S, repeat(_PAUSES_S[-1]))
    while trial.run_id is None:
        error: Exception | None = None
        try:
            trial.run_id = _find(trial, tracking)
        except Exception as raised:  # noqa: BLE001  any error of a store may be transient
            error = raised
        if trial.run_id is None:
            remaining_s = end - clock()
            if remaining_s <= 0:
                reason = _missing_reason(trial.trial_id, tracking, timeout_s, error)
                raise NoTrialRunError(reason) from error
            sleep(min(next(pauses_s), remaining_s))
    return TrialRun(connect(tracking.tracking_uri), tracking.tracking_uri, trial.run_id)


def _create_in_own_store(tracking: TrialTracking) -> str:
    client = connect(tracking.tracking_uri)
    path = sqlite_path(tracking.tracking_uri)
    files = None if path is None else path.with_name("artifacts").as_uri()
    experiment = client.create_experiment(tracking.experiment_name, artifact_location=files)
    return client.create_run(experiment).info.run_id


def _find(trial: _Trial, tracking: TrialTracking) -> str | None:
    """Return the id of a trial's run; None if the driver has not created it yet."""
    path = sqlite_path(tracking.tracking_uri)
    if path is not None and not path.exists():
        return None  # MLflow would create an empty store, on a node without the sweep's file
    client = connect(tracking.tracking_uri)
    experiment = client.get_experiment_by_name(tracking.experiment_name)
    if experiment is None:
        return None
    runs = client.search_runs(
        [experiment.experiment_id],
        f"tags.`{RUN_TAG}` = '{run_tag(tracking.sweep_id, trial.trial_id)}'",
        max_results=1,
    )
    return runs[0].info.run_id if runs else None


def _missing_reason(
    trial_id: str, tracking: TrialTracking, timeout_s: float, error: Exception | None
) -> str:
    """Return why the run is missing and a remedy, without any password."""
    path, node = sqlite_path(tracking.tracking_uri), socket.gethostname()
    if path is not None and not path.exists():
        return (
            f"the sweep keeps its MLflow runs in the file {path}, which is not on {node}: a SQLite "
            "store serves one machine; start a server with `mlflow server` and set "
            "tracking_uri to its address"
        )
    parts = urlsplit(tracking.tracking_uri)
    store = path or f"{parts.scheme}://{parts.hostname or ''}"
    if error is not None:
        return (
            f"the MLflow store {store} does not answer from {node} ({type(error).__name__}): check "
            "that it is running and reachable from there"
        )
    return (
        f"the MLflow store {store} has no run for trial {trial_id} of sweep {tracking.sweep_id} "
        f"after {timeout_s:g} s: the sweep may be unable to write to it (see its log), or "
        "may need longer: raise timeout_s"
    )
