"""Recorders of a running sweep: result files, event log and study."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune import Callback, Checkpoint
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict
from ray.tune.utils.util import SafeFallbackEncoder

from tune_tf.atomic_files import append_line, write_atomically
from tune_tf.events import TRIAL_LOG, EventLog, mask_log
from tune_tf.inspection.reported_results import REMOTE_CHECKPOINT, RESULTS
from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, Outcome
from tune_tf.outcome_rules import error_cause
from tune_tf.searchers import OptunaSearcher
from tune_tf.secrets import secret_values
from tune_tf.sweep.state.storage import SweepStorage
from tune_tf.sweep_folder import trial_folder_name
from tune_tf.tracking import MLflowCallback, OutcomeTracker
from tune_tf.tune_internals.trial_state import (
    EndedTrials,
    NewTrials,
    latest_result,
    trial_error,
    trial_number,
)

_PARAMS = "params.json"


def trial_name(trial: Trial) -> str:
    """Return the name of a trial from its number, which determines the seed."""
    return trial_folder_name(trial_number(trial))


def trial_cause(trial: Trial) -> str | None:
    """Return the cause of a trial's outcome, if it is known."""
    if trial.status == Trial.ERROR:
        return error_cause(trial_error(trial))
    cause: str | None = latest_result(trial).get(STOP_CAUSE)
    return cause


class ResultFiles(Callback):
    """Tune callback that writes ``result.json`` and ``params.json`` like Tune's own logger.

    Tune's logger writes to a staging folder that is copied at intervals, so a killed driver loses
    the last seconds. This callback appends each result to the sweep's folder at once.
    """

    def __init__(self, folder: Path, storage: SweepStorage) -> None:
        self._folder = folder
        self._storage = storage

    def on_trial_start(self, trial: Trial, **info: Any) -> None:
        """Write the trial's config, as the scheduler may have changed it."""
        path = self._folder_of(trial)
        text = json.dumps(trial.config, indent=2, sort_keys=True, cls=SafeFallbackEncoder)
        write_atomically(path / _PARAMS, text + "\n", on_disk=False)

    def on_trial_result(self, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Append a result; on a full disk raise OSError and leave the file unchanged."""
        path = self._folder_of(trial) / RESULTS
        line = json.dumps(result, cls=SafeFallbackEncoder).encode()
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            append_line(file, line, path)
        finally:
            os.close(file)

    def on_checkpoint(self, trial: Trial, checkpoint: Checkpoint, **info: Any) -> None:
        """Write the URI of the last checkpoint if it is in remote storage."""
        location = self._storage.location(checkpoint.path)
        if isinstance(location, str):
            path = self._folder_of(trial) / REMOTE_CHECKPOINT
            write_atomically(path, f"{location}\n", on_disk=False)

    def _folder_of(self, trial: Trial) -> Path:
        path = self._folder / trial_name(trial)
        path.mkdir(exist_ok=True)
        return path


class StudyFinalizer(Callback):
    """Tune callback that reports missing outcomes and run ids to the study at the end.

    Tune must call it after the tracker, which has all run ids only then. It must run inside
    ``tune.run``, where the searcher can ask Tune for the trials even if a resume runs none.
    """

    def __init__(
        self,
        searcher: OptunaSearcher,
        outcome_tracker: OutcomeTracker,
        tracker: MLflowCallback | None,
    ) -> None:
        self._searcher = searcher
        self._outcome_tracker = outcome_tracker
        self._tracker = tracker

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Report outcomes and run ids."""
        run_ids = self._tracker.run_ids() if self._tracker else {}
        last = {
            trial.trial_id: {
                **flatten_dict(latest_result(trial)),
                MLFLOW_RUN_ID: run_ids.get(trial.trial_id),
            }
            for trial in trials
        }
        self._searcher.finish(self._outcome_tracker.outcomes, last)


class EventRecorder(Callback):
    """Tune callback that writes starts, pauses and outcomes of trials to the event log.

    Tune must call the outcome tracker first. ``explain`` returns why the scheduler pauses a trial,
    or goes on with it, if it can tell.
    """

    def __init__(
        self,
        event_log: EventLog,
        outcome_tracker: OutcomeTracker,
        tracker: MLflowCallback | None = None,
        explain: Callable[[Trial], str | None] = lambda trial: None,
    ) -> None:
        self._event_log = event_log
        self._explain = explain
        self._outcome_tracker = outcome_tracker
        self._tracker = tracker
        self._running_trials: dict[str, Trial] = {}
        self._ended = EndedTrials()
        self._new = NewTrials()
        self._unstarted: dict[str, Trial] = {}  # nor in the event log
        self._recorded: dict[str, Outcome] = {
            events.trial_id: events.outcome
            for events in event_log.history.trials.values()
            if events.outcome is not None
        }

    def on_trial_start(self, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Record that a trial starts or resumes."""
        self._running_trials[trial.trial_id] = trial
        self._recorded.pop(trial.trial_id, None)
        self._record_unstarted_before(trials, trial)
        self._event_log.record_start(
            trial.trial_id, trial_number(trial), trial.config, self._explain(trial)
        )

    def on_trial_complete(self, trial: Trial, **info: Any) -> None:
        """Record how a trial ended."""
        self._record_end(trial)

    on_trial_error = on_trial_complete

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Record paused trials, and ends for which Tune calls no hook."""
        for trial_id, trial in list(self._running_trials.items()):
            if trial.status == Trial.PAUSED:
                del self._running_trials[trial_id]
                self._event_log.record_pause(trial_id, self._explain(trial))
        for trial in self._ended.take(trials):
            self._record_end(trial)
        self._record_parent_run()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Record the outcomes of trials that were stopped."""
        for trial in trials:
            self._record_end(trial)
        self._record_parent_run()

    def _record_unstarted_before(self, trials: list[Trial], started: Trial) -> None:
        """Record unstarted trials before a started one, as a resume continues its numbering."""
        self._unstarted |= {each.trial_id: each for each in self._new.take(trials)}
        self._unstarted.pop(started.trial_id, None)
        for trial_id, trial in list(self._unstarted.items()):
            if trial_number(trial) < trial_number(started):
                del self._unstarted[trial_id]
                if not trial.is_finished():
                    self._event_log.record_creation(trial_id, trial_number(trial), trial.config)

    def _record_parent_run(self) -> None:
        """Record the id of the sweep's MLflow run, which may be created after the last step."""
        if self._tracker is not None and self._tracker.parent_run_id:
            self._event_log.record_parent_run(self._tracker.parent_run_id)
            self._tracker = None

    def _record_end(self, trial: Trial) -> None:
        trial_id = trial.trial_id
        outcome = self._outcome_tracker.outcomes.get(trial_id)
        if outcome is None or self._recorded.get(trial_id) is outcome:
            return
        self._recorded[trial_id] = outcome
        self._running_trials.pop(trial_id, None)
        log = self._event_log.folder / trial_name(trial) / TRIAL_LOG
        mask_log(log, secret_values())
        last = {name: value for name, value in latest_result(trial).items() if name != "config"}
        self._event_log.record_end(
            trial_id, trial_number(trial), trial.config, outcome, trial_cause(trial), last
        )
