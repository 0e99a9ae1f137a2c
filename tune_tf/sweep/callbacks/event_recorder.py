"""Recorder of a running sweep's events."""

from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.events import TRIAL_LOG, EventLog, mask_log
from tune_tf.outcome import Outcome
from tune_tf.secrets import secret_values
from tune_tf.sweep.trial_results import cause_in, trial_name
from tune_tf.tracking import MLflowCallback, OutcomeTracker
from tune_tf.tracking.descriptions import trial_number
from tune_tf.tracking.outcome_tracker import latest_result


class EventRecorder(Callback):
    """Tune callback that writes starts, pauses and outcomes of trials to the event log.

    Args:
        outcome_tracker: Tracks outcomes; Tune must call it before this callback.
        tracker: Provides the id of the sweep's MLflow run; None if tracking is off.
        secrets: Texts to mask in trial logs besides the secrets of the environment.
    """

    def __init__(
        self,
        event_log: EventLog,
        outcome_tracker: OutcomeTracker,
        tracker: MLflowCallback | None = None,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self._event_log = event_log
        self._outcome_tracker = outcome_tracker
        self._tracker = tracker
        self._secrets = secrets
        self._active: dict[str, Trial] = {}
        self._num_seen = 0
        self._unstarted: dict[str, Trial] = {}  # nor in the event log
        pages = event_log.history.trials
        self._recorded: dict[str, Outcome] = {
            trial_id: page.outcome for trial_id, page in pages.items() if page.outcome is not None
        }

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Record that a trial starts or resumes."""
        self._active[trial.trial_id] = trial
        self._recorded.pop(trial.trial_id, None)
        self._note_overtaken(trials, trial)
        self._event_log.record_start(trial.trial_id, trial_number(trial), trial.config)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Record how a trial ended."""
        self._note(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Record that a trial failed for good."""
        self._note(trial)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Record paused trials, and ends for which Tune calls no hook."""
        for trial_id, trial in list(self._active.items()):
            if trial.status == Trial.PAUSED:
                del self._active[trial_id]
                self._event_log.record_pause(trial_id)
        if len(self._recorded) != len(self._outcome_tracker.outcomes):
            for trial in trials:
                if trial.is_finished():
                    self._note(trial)
        self._note_run()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Record the outcomes of trials that were stopped."""
        for trial in trials:
            self._note(trial)
        self._note_run()

    def _note_overtaken(self, trials: list[Trial], started: Trial) -> None:
        """Record unstarted trials before a started one, as a resume continues its numbering."""
        self._unstarted |= {each.trial_id: each for each in trials[self._num_seen :]}
        self._num_seen = len(trials)
        self._unstarted.pop(started.trial_id, None)
        for trial_id, trial in list(self._unstarted.items()):
            if trial_number(trial) < trial_number(started):
                del self._unstarted[trial_id]
                if not trial.is_finished():
                    self._event_log.record_creation(trial_id, trial_number(trial), trial.config)

    def _note_run(self) -> None:
        """Record the id of the sweep's MLflow run, which may be created after the last step."""
        if self._tracker is not None and self._tracker.parent_run_id:
            self._event_log.record_parent_run(self._tracker.parent_run_id)
            self._tracker = None

    def _note(self, trial: Trial) -> None:
        trial_id = trial.trial_id
        outcome = self._outcome_tracker.outcomes.get(trial_id)
        if outcome is None or self._recorded.get(trial_id) is outcome:
            return
        self._recorded[trial_id] = outcome
        self._active.pop(trial_id, None)
        log = self._event_log.folder / trial_name(trial) / TRIAL_LOG
        mask_log(log, secret_values() | self._secrets)
        last = {name: value for name, value in latest_result(trial).items() if name != "config"}
        self._event_log.record_end(
            trial_id, trial_number(trial), trial.config, outcome, cause_in(trial), last
        )
