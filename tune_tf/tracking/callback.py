"""Ray Tune callback that logs a sweep to MLflow."""

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.result import NODE_IP, TRAINING_ITERATION

from tune_tf.constraint import Constraint
from tune_tf.errors import strip_colors
from tune_tf.objective import Objective
from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, Outcome
from tune_tf.outcome_rules import error_cause
from tune_tf.ranking import kept_result
from tune_tf.record import SweepFingerprint
from tune_tf.secrets import mask_all
from tune_tf.tracking import environment
from tune_tf.tracking.descriptions import (
    FINGERPRINT_TAG,
    NODE_TAG,
    SweepDetails,
    node_name,
)
from tune_tf.tracking.lineage import Lineage
from tune_tf.tracking.names import (
    MAX_TAG_LENGTH,
    mlflow_metrics,
    mlflow_params,
    truncate,
)
from tune_tf.tracking.outcome_tracker import OutcomeTracker
from tune_tf.tracking.parent_run import ParentRun
from tune_tf.tracking.run_writer import RunWriter
from tune_tf.tracking.runs import TrackedSweep
from tune_tf.tracking.store import (
    check_names,
    check_tracking_uri,
    process_experiment_name,
    process_tracking_uri,
)
from tune_tf.tracking.writing.run_update import (
    PARENT,
    STOP_CAUSE_TAG,
    STOP_REASON_TAG,
    Report,
    RunUpdate,
    now_ms,
)
from tune_tf.tune_internals.trial_state import reported_result

_ENVIRONMENT_TIMEOUT_S = 30.0


class MLflowCallback(Callback):
    """Tune callback that logs a sweep to MLflow: a parent run and one child run per trial.

    Works with any trainable, searcher and scheduler. Updates are queued; a thread loads MLflow and
    writes them. A failing store does not end the sweep.

    Its :attr:`outcome_tracker` determines the outcome of each trial. Secrets are masked: see
    :mod:`tune_tf.secrets`.

    Args:
        tracking_uri: MLflow's store. By default that of ``mlflow.set_tracking_uri`` or
            ``MLFLOW_TRACKING_URI``, else ``sqlite:///mlflow.db``.
        experiment_name: MLflow experiment of all runs, created if missing. By default that of
            ``mlflow.set_experiment``, ``MLFLOW_EXPERIMENT_NAME`` or ``MLFLOW_EXPERIMENT_ID``, else
            ``tune_tf``.
        sweep_name: Name of the parent run; by default Tune's name of the experiment.
        objective: Determines the best trial, and which trials diverged.
        constraints: Conditions that the best trial must meet.
        sweep_id: Tag shared by the runs; by default a new one. An id that the store has continues
            its runs.
        tags: Tags of all runs.
        spool_path: Folder for unwritten updates, which then survive a killed driver and an
            unavailable store; None to keep them in memory.
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
        spool_path: str | Path | None = None,
        details: SweepDetails | None = None,
    ) -> None:
        if tracking_uri is None:
            tracking_uri = process_tracking_uri()
        check_tracking_uri(tracking_uri)
        if experiment_name is None:
            experiment_name = process_experiment_name(tracking_uri)
        check_names(experiment_name, sweep_id)
        self._details = details or SweepDetails()
        sweep = TrackedSweep(
            sweep_id or "",
            tracking_uri,
            experiment_name,
            mask_all(tags or {}),
            dataset=self._details.dataset,
        )
        self._writer = RunWriter(sweep, None if spool_path is None else Path(spool_path))
        self.outcome_tracker = OutcomeTracker(objective, self._open_run, self._close_run)
        self._objective = objective
        self._constraints = tuple(constraints)
        self._sweep_name = sweep_name
        self._requested_id = sweep_id
        self._environment_thread: threading.Thread | None = None
        self._saved_state: Mapping[str, Any] = {}
        self._restore({})

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.outcome_tracker.set_state(state)
        self._tracked: set[str] = set(state.get("trial_ids", ()))
        self._parent = ParentRun(
            self._objective, self._constraints, self._details, state.get("summary", {})
        )
        self._lineage = Lineage(state.get("lineage", {}))
        self._nodes: dict[str, str | None] = {}
        self._has_name = self._sweep_name is not None

    @property
    def sweep_id(self) -> str | None:
        """Tag shared by the sweep's runs; None before the sweep starts."""
        return self._writer.sweep.sweep_id or None

    @property
    def parent_run_id(self) -> str | None:
        """MLflow's id of the parent run; None before it is created."""
        return self._writer.run_id_of(PARENT)

    def run_ids(self) -> dict[str, str]:
        """Return MLflow's run ids by trial id, for the runs created so far."""
        return {run: run_id for run, run_id in self._writer.run_ids.items() if run != PARENT}

    def attach(
        self,
        files: Mapping[str, Path],
        reports: Mapping[str, Report] = MappingProxyType({}),
        fingerprint: SweepFingerprint | None = None,
    ) -> None:
        """Add files, by artifact path, to the parent run of an ended sweep.

        ``reports`` are added to the runs of trials, by id, and the parent's. The files must stay in
        place. An unavailable store causes a warning; with a spool, nothing is lost. The
        ``fingerprint`` of a reproducible sweep becomes a tag.
        """
        if self.sweep_id is None:
            return
        trial_ids = frozenset(self._tracked)
        self._writer.open(self._writer.run_ids, reopen=True, trial_ids=trial_ids)
        paths = {path: str(file.absolute()) for path, file in files.items()}
        tag = fingerprint and truncate(str(fingerprint), MAX_TAG_LENGTH)
        self._writer.put(RunUpdate(PARENT, files=paths, tags={FINGERPRINT_TAG: tag} if tag else {}))
        for run, report in reports.items():
            self._writer.put(RunUpdate(run, reports=[report]))
        self._writer.close()

    def setup(self, *args: Any, **info: Any) -> None:
        """Start the writer and create the parent run."""
        self.outcome_tracker.setup()
        state, self._saved_state = self._saved_state, {}
        self._restore(state)
        self._writer.open(
            state.get("run_ids", {}),
            sweep_id=state.get("sweep_id") or self._requested_id or uuid.uuid4().hex,
            reopen=bool(state) or self._requested_id is not None,
            trial_ids=frozenset(self._tracked) if state else None,
        )
        self._writer.put(self._parent.start_update(self._sweep_name))
        for update in state.get("unwritten", ()):  # left by a killed driver
            self._writer.put(update)
        self._environment_thread = threading.Thread(
            target=self._log_environment,
            args=(bool(state),),
            name="tune_tf-environment",
            daemon=True,
        )
        self._environment_thread.start()

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Open the trial's run, and tag a trial cloned from another."""
        self.outcome_tracker.on_trial_start(iteration, trials, trial, **info)
        if tags := self._lineage.record_start(trial, trials):
            self._writer.put(RunUpdate(trial.trial_id, tags=tags))

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Trial],
        trial: Trial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        """Log the result's metrics, and add stop reason and run id to the result."""
        self.outcome_tracker.on_trial_result(iteration, trials, trial, result, **info)
        trial_id = trial.trial_id
        if run_id := self._writer.run_id_of(trial_id):
            result[MLFLOW_RUN_ID] = run_id
        metrics = mlflow_metrics(result)
        step = int(result.get(TRAINING_ITERATION, 0))
        tags = self._lineage.add_to_report(trial_id, metrics)
        node = result.get(NODE_IP)
        if self._nodes.get(trial_id) != node:
            self._nodes[trial_id] = node
            tags[NODE_TAG] = node_name(result)
        self._writer.put(RunUpdate(trial_id, tags=tags, reports=[Report(step, now_ms(), metrics)]))

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        """End the trial's run."""
        self.outcome_tracker.on_trial_complete(*args, **info)

    on_trial_error = on_trial_complete

    def on_step_begin(self, *args: Any, **info: Any) -> None:
        """End the runs of earlier sessions."""
        self.outcome_tracker.on_step_begin(*args, **info)

    def on_step_end(self, *args: Any, **info: Any) -> None:
        """End the runs of trials that Tune stopped without a hook."""
        self.outcome_tracker.on_step_end(*args, **info)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """End all runs and wait until they are written."""
        if not self._writer.is_open:
            return
        tracker, outcomes = self.outcome_tracker, self.outcome_tracker.outcomes
        tracker.on_step_begin(0, trials)  # Tune makes no step if no trial is left to run
        tracker.on_experiment_end([trial for trial in trials if trial.trial_id in self._tracked])
        if self._environment_thread is not None:
            self._environment_thread.join(_ENVIRONMENT_TIMEOUT_S)
            self._environment_thread = None
        update = self._parent.end_update(trials, outcomes)
        update.ends = {key: end.value for key, end in outcomes.items() if key not in self._tracked}
        self._writer.put(update)
        self._writer.close()

    def get_state(self) -> dict[str, Any] | None:
        """Return the current state for a resumed sweep, without waiting."""
        if self.sweep_id is None:
            return None
        return {
            **self.outcome_tracker.get_state(),
            "sweep_id": self.sweep_id,
            "run_ids": self._writer.run_ids,
            "trial_ids": sorted(self._tracked),
            "unwritten": self._writer.unwritten(),
            "summary": self._parent.state(),
            "lineage": self._lineage.state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore an interrupted sweep; Tune calls this before :meth:`setup`."""
        self._saved_state = state

    def _open_run(self, trial: Trial) -> None:
        if not self._has_name:
            self._has_name = True
            self._writer.put(RunUpdate(PARENT, name=trial.storage.experiment_dir_name))
        if trial.trial_id in self._tracked:
            self._writer.put(RunUpdate(trial.trial_id, reopen=True))
            return
        self._tracked.add(trial.trial_id)
        update = RunUpdate(
            trial.trial_id,
            name=str(trial),
            params=mlflow_params(trial.config),
            tags=self._details.start_tags(trial),
            reopen=True,
            fresh=not reported_result(trial),
        )
        self._writer.put(update)

    def _close_run(self, trial: Trial, outcome: Outcome, error: str | None) -> None:
        """End the trial's run and update the progress on the parent run."""
        reported = reported_result(trial)
        last = kept_result({**reported, **mlflow_metrics(reported)})
        cause = error_cause(error) if error else last.get(STOP_CAUSE)
        feasible = self._parent.is_feasible(last)
        tags = {STOP_REASON_TAG: outcome.value, **self._details.end_tags(last)}
        if feasible is not None:
            tags["tune_tf.feasible"] = str(feasible).lower()
        if cause:
            tags[STOP_CAUSE_TAG] = truncate(str(cause), MAX_TAG_LENGTH)
        update = RunUpdate(trial.trial_id, tags=tags, status=outcome.mlflow, end_ms=now_ms())
        if error:
            update.texts["error.txt"] = strip_colors(error)
        self._writer.put(update)
        if outcome is not Outcome.INTERRUPTED:
            self._lineage.forget(trial.trial_id)
            self._nodes.pop(trial.trial_id, None)
            best = self._parent.record_end(trial.trial_id, trial.config, outcome, last)
            outcomes = self.outcome_tracker.outcomes
            self._writer.put(self._parent.trial_update(outcomes, new_best=best))

    def _log_environment(self, is_resumed: bool) -> None:
        """Log the environment; runs in a thread, since it takes seconds."""
        began = time.gmtime(now_ms() / 1000)
        folder = time.strftime("resumed-%Y%m%d-%H%M%S/", began) if is_resumed else ""
        texts = environment.environment_texts()
        texts = {f"environment/{folder}{name}": text for name, text in texts.items()}
        self._writer.put(RunUpdate(PARENT, texts=texts))
