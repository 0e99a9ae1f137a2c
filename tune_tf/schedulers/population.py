"""What Ray's two population based schedulers lack, and both need."""

import copy
from typing import Any

from ray.tune import Checkpoint
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from tune_tf.config import SchedulerSettings
from tune_tf.config.scheduler_settings import Pb2Settings, PbtSettings
from tune_tf.objective import Objective
from tune_tf.outcome import CONFIG_CHANGED_AT
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.controller_proxy import ControllerProxy
from tune_tf.schedulers.outcome_mixin import OutcomeMixin


class PopulationMixin(OutcomeMixin, PopulationBasedTraining):
    """Mixin for Ray's ``PopulationBasedTraining``: any searcher makes the first configs.

    The best trials' checkpoints are given to the worst ones, which go on with a changed config.
    From then on a trial's values are not those of the config that the searcher proposed:
    ``config_changed_at`` in its results says which was the last iteration with that one.

    Ray's state of a trial is private. What is used of it: the score that makes a trial a donor, the
    donor's checkpoint, and the last iteration and result that a waiting trial has told.

    Attributes:
        num_to_keep: All checkpoints: a trial may wait for a slot while its donor goes on.
    """

    settings: PbtSettings | Pb2Settings
    num_to_keep = None

    def _begin(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Take up the settings; the last line of a subclass's ``__init__``."""
        super()._begin(objective, settings)
        self._tags: dict[str, str | None] = {}
        self._changed_at: dict[str, int] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial; Ray refuses searchers, though it asks them nothing."""
        super().on_trial_add(_seen(tune_controller), trial)
        self._tags.setdefault(trial.trial_id, trial.experiment_tag)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return what Ray's scheduler decides; notes which trials it has given another config."""
        self._await_pending(tune_controller)
        decision = super().on_trial_result(_seen(tune_controller), trial, result)
        if (changed_at := self._changed_at.get(trial.trial_id)) is not None:
            result[CONFIG_CHANGED_AT] = changed_at
        self._note_changes({trial.trial_id: int(result.get(TRAINING_ITERATION, 0))})
        if decision == TrialScheduler.STOP:
            self._retire(trial)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Write when the config was changed, and the reason of the end."""
        self._take_up(tune_controller)
        if (changed_at := self._changed_at.get(trial.trial_id)) is not None:
            trial.last_result[CONFIG_CHANGED_AT] = changed_at
        super().on_trial_complete(tune_controller, trial, result)
        self._retire(trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Write when the config was changed, and the reason of the end."""
        self._take_up(tune_controller)
        if (changed_at := self._changed_at.get(trial.trial_id)) is not None:
            trial.last_result[CONFIG_CHANGED_AT] = changed_at
        super().on_trial_remove(tune_controller, trial)
        self._retire(trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Take a failed trial out; it is added again if it is to be tried again."""
        super().on_trial_error(tune_controller, trial)
        self._retire(trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial to run next; where all wait for one that has ended, they go on.

        Ray wakes a population that waits for its last trial only by that trial's result (ray#23424
        shows one that sleeps for ever).
        """
        self._await_pending(tune_controller)
        chosen = super().choose_trial_to_run(tune_controller, **options)
        if chosen is None and (waiting := _all_wait(tune_controller.get_trials())):
            last = max(waiting, key=lambda trial: self._trial_state[trial].last_train_time)
            if result := self._trial_state[last].last_result:
                with self._deciding():
                    PopulationBasedTraining.on_trial_result(
                        self, _seen(tune_controller), last, result
                    )
                self._note_changes({})
            chosen = super().choose_trial_to_run(tune_controller, **options) or waiting[0]
        return chosen

    def __getstate__(self) -> dict[str, Any]:
        """Return the state, in which a checkpoint that is still being made is the one before it."""
        states = {}
        for trial, state in self._trial_state.items():
            states[trial] = copy.copy(state)
            if not isinstance(state.last_checkpoint, Checkpoint | None):
                states[trial].last_checkpoint = trial.checkpoint
        return super().__getstate__() | {"_trial_state": states}

    @property
    def needed_checkpoints(self) -> frozenset[str]:
        """Return the checkpoints of donors, which others go on from.

        While one is still being made, all of its trial are needed: the one before it may be the
        last.
        """
        needed = set()
        for trial, state in self._trial_state.items():
            made = state.last_checkpoint
            if isinstance(made, Checkpoint):
                needed.add(made.path)
            elif made is not None:
                needed.add(trial.path)
        return frozenset(needed)

    def _await_pending(self, tune_controller: Any) -> None:
        """Let a synchronous population wait for the trials that are about to start.

        One that had reported before a kill or a failure starts again. Ray would pause it to give it
        another config, and Tune loses the process that it starts for a pending trial.
        """
        self._take_up(tune_controller)
        if not self._synch:
            return
        for trial in tune_controller.get_trials():
            if trial.status == Trial.PENDING and trial in self._trial_state:
                self._trial_state[trial].last_train_time = 0

    def _note_changes(self, iterations: dict[str, int]) -> None:
        """Note the trials whose weights and config are another's now; Ray marks them by a tag.

        Args:
            iterations: Iteration of a trial whose last result Tune has not taken up yet.
        """
        for trial_id, trial in self._trials.items():
            fresh = trial_id not in self._changed_at
            if fresh and trial.experiment_tag != self._tags.get(trial_id):
                seen = iterations.get(trial_id, trial.last_result.get(TRAINING_ITERATION, 0))
                self._changed_at[trial_id] = int(seen)

    def _retire(self, trial: Trial) -> None:
        """Make a trial that has ended nobody's donor, also while Tune still saves it."""
        if state := self._trial_state.get(trial):
            state.last_score = None
            state.last_checkpoint = None


def _all_wait(trials: list[Trial]) -> list[Trial]:
    """Return the trials to go on with if all of them are paused, else none."""
    live = [trial for trial in trials if not trial.is_finished()]
    return live if all(trial.status == Trial.PAUSED for trial in live) else []


def _seen(controller: Any) -> Any:
    """Return a controller without a searcher, and without trials that failed among the live."""
    if controller is None or isinstance(controller, ControllerProxy):
        return controller

    def live() -> list[Trial]:
        return [trial for trial in controller.get_live_trials() if not trial.is_finished()]

    return ControllerProxy(controller, search_alg=None, get_live_trials=live)
