"""Keeps a sweep's diary while it runs."""

from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.events import TRIAL_LOG, EventLog, mask_log
from tune_tf.outcome import Outcome
from tune_tf.secrets import secret_values
from tune_tf.sweep.trial_results import cause_in, trial_name
from tune_tf.tracking import MLflowCallback, OutcomeTracker
from tune_tf.tracking.outcome_tracker import latest_result
from tune_tf.tracking.tags import trial_number


class EventRecorder(Callback):
    """Writes into a sweep's diary what becomes of its trials; a Tune callback that only looks.

    Args:
        diary: Where to write.
        endings: Knows how the trials end; called before this one.
        tracker: Knows MLflow's id of the sweep's run; None where nothing is tracked.
        secrets: What is masked in the logs of trials, beside the secrets of the environment.
    """

    def __init__(
        self,
        diary: EventLog,
        endings: OutcomeTracker,
        tracker: MLflowCallback | None = None,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self._diary = diary
        self._endings = endings
        self._tracker = tracker
        self._secrets = secrets
        self._active: dict[str, Trial] = {}
        self._num_seen = 0
        self._unstarted: dict[str, Trial] = {}  # and not in the diary
        pages = diary.pages.trials
        self._told: dict[str, Outcome] = {
            trial_id: page.outcome for trial_id, page in pages.items() if page.outcome is not None
        }

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Note that a trial starts, or goes on."""
        self._active[trial.trial_id] = trial
        self._told.pop(trial.trial_id, None)
        self._note_overtaken(trials, trial)
        self._diary.started(trial.trial_id, trial_number(trial), trial.config)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Note how a trial ended."""
        self._note(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Note that a trial failed for good."""
        self._note(trial)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Note the trials that are paused, or that ended without a word."""
        for trial_id, trial in list(self._active.items()):
            if trial.status == Trial.PAUSED:
                del self._active[trial_id]
                self._diary.paused(trial_id)
        if len(self._told) != len(self._endings.outcomes):
            for trial in trials:
                if trial.is_finished():
                    self._note(trial)
        self._note_run()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Note what became of the trials that have not ended by themselves."""
        for trial in trials:
            self._note(trial)
        self._note_run()

    def _note_overtaken(self, trials: list[Trial], started: Trial) -> None:
        """Note trials that were created before one that starts first: a resume counts from it."""
        self._unstarted |= {each.trial_id: each for each in trials[self._num_seen :]}
        self._num_seen = len(trials)
        self._unstarted.pop(started.trial_id, None)
        for trial_id, trial in list(self._unstarted.items()):
            if trial_number(trial) < trial_number(started):
                del self._unstarted[trial_id]
                if not trial.is_finished():
                    self._diary.created(trial_id, trial_number(trial), trial.config)

    def _note_run(self) -> None:
        """Note the sweep's run once it is made, which may be after the last step."""
        if self._tracker is not None and self._tracker.parent_run_id:
            self._diary.tracked(self._tracker.parent_run_id)
            self._tracker = None

    def _note(self, trial: Trial) -> None:
        trial_id = trial.trial_id
        outcome = self._endings.outcomes.get(trial_id)
        if outcome is None or self._told.get(trial_id) is outcome:
            return
        self._told[trial_id] = outcome
        self._active.pop(trial_id, None)
        log = self._diary.folder / trial_name(trial) / TRIAL_LOG
        mask_log(log, secret_values() | self._secrets)
        last = {name: value for name, value in latest_result(trial).items() if name != "config"}
        self._diary.ended(
            trial_id, trial_number(trial), trial.config, outcome, cause_in(trial), last
        )
