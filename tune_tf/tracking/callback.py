"""Ray Tune callback that logs a sweep to MLflow."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.constraint import Constraint
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.record import RECORD, Record, SweepHistory
from tune_tf.secrets import mask_all
from tune_tf.tracking.store import (
    check_names,
    check_tracking_uri,
    process_experiment_name,
    process_tracking_uri,
)
from tune_tf.tracking.tags import PARENT
from tune_tf.tracking.tracked_sweep import SweepDetails, TrackedSweep
from tune_tf.tracking.view import MLflowView
from tune_tf.trial_observer import TrialObserver
from tune_tf.tune_internals.controller import asks_for_more

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Session:
    """A run of Tune's that is under way."""

    record: Record
    view: MLflowView
    observer: TrialObserver


class MLflowCallback(Callback):
    """Tune callback that logs a sweep to MLflow: a parent run and one child run per trial.

    Works with any trainable, searcher and scheduler. It writes a record, the file ``sweep.db`` in
    the experiment's folder, from which a thread fills MLflow. A failing store does not end the
    sweep, and what it lacks at the end is sent when Tune resumes the experiment.

    Secrets are masked: see :mod:`tune_tf.secrets`.

    Args:
        tracking_uri: MLflow's store. By default that of ``mlflow.set_tracking_uri`` or
            ``MLFLOW_TRACKING_URI``, else ``sqlite:///mlflow.db``.
        experiment_name: MLflow experiment of all runs, created if missing. By default that of
            ``mlflow.set_experiment``, ``MLFLOW_EXPERIMENT_NAME`` or ``MLFLOW_EXPERIMENT_ID``, else
            ``tune_tf``.
        sweep_name: Name of the parent run; by default Tune's name of the experiment.
        objective: Determines the best trial, and which trials diverged.
        constraints: Conditions that the best trial must meet.
        sweep_id: Tag shared by the runs; by default a new one, or that of the experiment that Tune
            resumes.
        tags: Tags of all runs.
        details: Details of the sweep and its trials.

    Raises:
        InvalidSettingsError: The tracking URI cannot work, a name is invalid, or the experiment of
            the environment cannot be read.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        experiment_name: str | None = None,
        sweep_name: str | None = None,
        *,
        objective: Objective | None = None,
        constraints: Sequence[Constraint] = (),
        sweep_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        details: SweepDetails | None = None,
    ) -> None:
        if tracking_uri is None:
            tracking_uri = process_tracking_uri()
        check_tracking_uri(tracking_uri)
        if experiment_name is None:
            experiment_name = process_experiment_name(tracking_uri)
        check_names(experiment_name, sweep_id)
        self._requested_id, self._sweep_name = sweep_id, sweep_name
        self._sweep = TrackedSweep(
            sweep_id or "",
            tracking_uri,
            experiment_name,
            sweep_name or "",
            mask_all(tags or {}),
            objective,
            tuple(constraints),
            details or SweepDetails(),
        )
        self._session: _Session | None = None
        self._run_ids: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without a run of Tune's that is under way."""
        return {**vars(self), "_session": None}

    @property
    def sweep_id(self) -> str | None:
        """Tag shared by the sweep's runs; None before the sweep starts."""
        return self._sweep.sweep_id or None

    @property
    def parent_run_id(self) -> str | None:
        """MLflow's id of the parent run; None before it is created."""
        return self._session.view.run_id_of(PARENT) if self._session else self._run_ids.get(PARENT)

    def run_ids(self) -> dict[str, str]:
        """Return MLflow's run ids by trial id, for the runs created so far."""
        run_ids = self._session.view.run_ids if self._session else self._run_ids
        return {key: run_id for key, run_id in run_ids.items() if key != PARENT}

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Begin a step of the record."""
        if self._session is not None:
            self._session.observer.on_step_begin(iteration, trials)

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Record that a trial starts or continues."""
        self._begun(trials).observer.on_trial_start(iteration, trials, trial)

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Record a result, and add stop reason and run id to it."""
        self._begun(trials).observer.on_trial_result(iteration, trials, trial, result)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Record how a trial ended."""
        self._begun(trials).observer.on_trial_complete(iteration, trials, trial)

    on_trial_error = on_trial_complete

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Record what Tune has no hook for."""
        if trials:
            self._begun(trials).observer.on_step_end(iteration, trials)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Record the end, and wait until MLflow has everything."""
        if not trials:
            return
        session = self._begun(trials)
        view, record = session.view, session.record
        with record:
            session.observer.on_experiment_end(trials)
            outcomes = session.observer.outcomes.values()
            interrupted = Outcome.INTERRUPTED in outcomes or asks_for_more()
            record.record_session_end(interrupted=interrupted, run_ids={})
            if not view.close():
                _logger.warning(
                    "MLflow lacks a part of the sweep (%s): resume the experiment to send it",
                    view.last_error,
                )
            record.record_run_ids(view.trial_run_ids)
        self._run_ids, self._session = view.run_ids, None

    def _begun(self, trials: Sequence[Trial]) -> _Session:
        """Return the session, which begins with the first trial: before, Tune tells no folder."""
        if self._session is not None:
            return self._session
        storage = trials[0].storage
        folder = Path(storage.experiment_fs_path)
        if not folder.is_absolute():  # in a bucket
            folder = Path(storage.experiment_driver_staging_path)
        folder.mkdir(parents=True, exist_ok=True)
        trial_ids = {trial.trial_id for trial in trials}
        known = SweepHistory.read(folder).trials.keys()
        if known.isdisjoint(trial_ids):  # of another run of Tune's
            for file in folder.glob(f"{RECORD}*"):
                file.unlink()
        record = Record(folder).begin_session()
        record.forget_trials(known - trial_ids)  # Tune, which was killed, does not know them
        record.record_dataset(self._sweep.details.dataset)
        first = record.history.sessions[0]
        new_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{first.begun_s} {first.process} {first.host}")
        self._sweep = replace(
            self._sweep,
            sweep_id=self._requested_id or new_id.hex,
            name=self._sweep_name or storage.experiment_dir_name,
            storage=storage.experiment_fs_path,
        )
        view = MLflowView(folder, self._sweep)
        view.start(trial_ids)
        observer = TrialObserver(record, self._sweep.objective, run_id=view.run_id_of)
        observer.setup()
        self._session = _Session(record, view, observer)
        return self._session
