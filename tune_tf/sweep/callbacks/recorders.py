"""Recorders of a running sweep: its record and its study."""

from collections.abc import Callable
from typing import Any

from ray.tune import Callback, Checkpoint
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE
from tune_tf.outcome_rules import error_cause
from tune_tf.record import TRIAL_LOG, Record, mask_log
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


def trial_name(trial: Trial) -> str:
    """Return the name of a trial from its number, which determines the seed."""
    return trial_folder_name(trial_number(trial))


def trial_cause(trial: Trial) -> str | None:
    """Return the cause of a trial's outcome, if it is known."""
    if trial.status == Trial.ERROR:
        return error_cause(trial_error(trial))
    cause: str | None = latest_result(trial).get(STOP_CAUSE)
    return cause


class TrialRecorder(Callback):
    """Tune callback that writes the record of the trials: starts, results, pauses and ends.

    Tune must call the outcome tracker first. ``explain`` returns why the scheduler pauses a trial,
    or goes on with it, if it can tell.
    """

    def __init__(
        self,
        record: Record,
        storage: SweepStorage,
        outcome_tracker: OutcomeTracker,
        tracker: MLflowCallback | None = None,
        explain: Callable[[Trial], str | None] = lambda trial: None,
    ) -> None:
        self._record = record
        self._storage = storage
        self._explain = explain
        self._outcome_tracker = outcome_tracker
        self._tracker = tracker
        self._running_trials: dict[str, Trial] = {}
        self._ended = EndedTrials()
        self._new = NewTrials()
        trials = record.history.trials.values()
        self._known = {each.trial_id for each in trials}
        self._outcomes = {each.trial_id: each.outcome for each in trials if each.outcome}

    def on_trial_start(self, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Record that a trial starts or resumes."""
        self._record_new(trials)
        self._running_trials[trial.trial_id] = trial
        self._outcomes.pop(trial.trial_id, None)
        self._record.record_start(
            trial.trial_id, trial_number(trial), trial.config, self._explain(trial)
        )

    def on_trial_result(self, trial: Trial, result: dict[str, Any], **info: Any) -> None:
        """Record a result."""
        self._record.record_result(trial_number(trial), result)

    def on_checkpoint(self, trial: Trial, checkpoint: Checkpoint, **info: Any) -> None:
        """Record where a trial's last checkpoint is, if that is in remote storage."""
        location = self._storage.location(checkpoint.path)
        if isinstance(location, str):
            self._record.record_checkpoint(trial.trial_id, location)

    def on_trial_complete(self, trial: Trial, **info: Any) -> None:
        """Record how a trial ended."""
        self._record_end(trial)

    on_trial_error = on_trial_complete

    def on_step_end(self, trials: list[Trial], **info: Any) -> None:
        """Record new and paused trials, and ends for which Tune calls no hook."""
        self._record_new(trials)
        for trial_id, trial in list(self._running_trials.items()):
            if trial.status == Trial.PAUSED:
                del self._running_trials[trial_id]
                self._record.record_pause(trial_id, self._explain(trial))
        for trial in self._ended.take(trials):
            self._record_end(trial)
        self._record_parent_run()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Record the outcomes of trials that were stopped."""
        self._record_new(trials)
        for trial in trials:
            self._record_end(trial)
        self._record_parent_run()

    def _record_new(self, trials: list[Trial]) -> None:
        """Record trials that have not started, as a resume continues their numbering."""
        for trial in self._new.take(trials):
            if trial.trial_id not in self._known:
                self._known.add(trial.trial_id)
                self._record.record_creation(trial.trial_id, trial_number(trial), trial.config)

    def _record_parent_run(self) -> None:
        """Record the id of the sweep's MLflow run, which may be created after the last step."""
        if self._tracker is not None and self._tracker.parent_run_id:
            self._record.record_parent_run(self._tracker.parent_run_id)
            self._tracker = None

    def _record_end(self, trial: Trial) -> None:
        trial_id = trial.trial_id
        outcome = self._outcome_tracker.outcomes.get(trial_id)
        if outcome is None or self._outcomes.get(trial_id) is outcome:
            return
        self._outcomes[trial_id] = outcome
        self._running_trials.pop(trial_id, None)
        mask_log(self._record.folder / trial_name(trial) / TRIAL_LOG, secret_values())
        self._record.record_end(
            trial_id, trial_number(trial), trial.config, outcome, trial_cause(trial)
        )


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
