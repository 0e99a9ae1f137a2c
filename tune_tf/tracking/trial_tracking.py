"""Lookup of a trial's MLflow run from the process of the trial."""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tune_tf.errors import InvalidSettingsError, TuneTfError
from tune_tf.tracking.runs import connect
from tune_tf.tracking.uri import sqlite_path
from tune_tf.tracking.writing.run_update import SWEEP_ID_TAG, TRIAL_ID_TAG

_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_PARENT_RUN_ID = "mlflow.parentRunId"
_CONTEXT = ("mlflow.user", "mlflow.source.")  # user and code, the same for all runs of a sweep


class NoTrialRunError(TuneTfError, RuntimeError):
    """Missing MLflow run of a trial: tracking is off, or the store is unreachable."""


@dataclass(frozen=True)
class TrialTracking:
    """Tracking settings of a sweep for the processes of its trials.

    Args:
        tracking_uri: MLflow's store.
        experiment_name: MLflow experiment of the sweep.
        sweep_id: Tag shared by the sweep's runs.
        system_metrics: Whether trials report the load of their machine and process.
        credentials: MLflow's environment variables for user, password or token, which are set in
            the trial's process if missing.
    """

    tracking_uri: str = field(repr=False)
    experiment_name: str
    sweep_id: str
    system_metrics: bool = True
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Validate the values that identify a run."""
        errors = [
            f"{name} must not be empty"
            for name in ("tracking_uri", "experiment_name", "sweep_id")
            if not getattr(self, name)
        ]
        if "'" in self.sweep_id:
            errors.append(f"sweep_id must be text without quotes, not {self.sweep_id!r}")
        if errors:
            raise InvalidSettingsError(errors)


def trial_run_id(
    trial_id: str,
    tracking: TrialTracking,
    *,
    starting: bool,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Wait for a trial's MLflow run and return its id.

    The driver creates the run once the trial has started. A trial that is still starting cannot
    wait for that and creates the run itself; the driver adopts it.

    ``timeout_s`` limits the wait for the run or, if the trial is starting, for the parent run.

    Raises:
        NoTrialRunError: No run was found in time; the message has the reason and a remedy.
    """
    end = clock() + timeout_s
    attempt = 0
    while True:
        error: Exception | None = None
        run_id: str | None = None
        try:
            run_id = _found(trial_id, tracking, starting=starting)
        except Exception as raised:  # noqa: BLE001  any error of a store may be transient
            error = raised
        if run_id is not None:
            return run_id
        left = end - clock()
        if left <= 0:
            raise NoTrialRunError(_reason(trial_id, tracking, timeout_s, error)) from error
        sleep(min(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)], left))
        attempt += 1


def _found(trial_id: str, tracking: TrialTracking, *, starting: bool) -> str | None:
    path = sqlite_path(tracking.tracking_uri)
    if path is not None and not path.exists():
        return None  # MLflow would create an empty store, on a node without the sweep's file
    client = connect(tracking.tracking_uri)
    experiment = client.get_experiment_by_name(tracking.experiment_name)
    if experiment is None:
        return None
    own = f"tags.`{SWEEP_ID_TAG}` = '{tracking.sweep_id}'"
    runs = client.search_runs(
        [experiment.experiment_id],
        f"{own} AND tags.`{TRIAL_ID_TAG}` = '{trial_id}'",
        max_results=1,
        order_by=["attributes.start_time DESC"],
    )
    if runs or not starting:
        return runs[0].info.run_id if runs else None
    # The parent run is the oldest.
    first = client.search_runs(
        [experiment.experiment_id], own, max_results=1, order_by=["attributes.start_time ASC"]
    )
    if not first or TRIAL_ID_TAG in first[0].data.tags:
        return None
    parent = first[0]
    context = {key: tag for key, tag in parent.data.tags.items() if key.startswith(_CONTEXT)}
    made = {
        SWEEP_ID_TAG: tracking.sweep_id,
        TRIAL_ID_TAG: trial_id,
        _PARENT_RUN_ID: parent.info.run_id,
    }
    return client.create_run(experiment.experiment_id, tags={**context, **made}).info.run_id


def _reason(
    trial_id: str, tracking: TrialTracking, timeout_s: float, error: Exception | None
) -> str:
    """Return why the run is missing and a remedy, without any password."""
    path = sqlite_path(tracking.tracking_uri)
    node = socket.gethostname()
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
