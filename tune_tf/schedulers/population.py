"""Population based training: the worst trials continue from the best, with changed configs."""

import copy
from typing import Any

from ray.tune import Checkpoint
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from tune_tf.config import SchedulerSettings
from tune_tf.config.scheduler_settings import PbtSettings, PopulationSettings
from tune_tf.objective import Objective
from tune_tf.outcome import CONFIG_CHANGED_AT, Outcome
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.mutations import pbt_refusal, select_mutations
from tune_tf.schedulers.outcome_mixin import OutcomeMixin, comparison_arguments
from tune_tf.schedulers.state import SchedulerResume
from tune_tf.space import SearchSpace
from tune_tf.tune_internals.controller import ControllerProxy


class PopulationMixin(OutcomeMixin, PopulationBasedTraining):
    """Mixin for Ray's ``PopulationBasedTraining`` with any searcher for the first configs.

    The worst trials get the checkpoints of the best ones and continue with a changed config. From
    then on a trial's values do not belong to the config that the searcher suggested:
    ``config_changed_at`` in what the searcher gets of a result is the last iteration with that
    config.

    Tune must keep all checkpoints of a trial: another may wait for a slot while it continues.
    """

    settings: PopulationSettings

    def _configure(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Set the settings; the last line of a subclass's ``__init__``."""
        super()._configure(objective, settings)
        self._tags: dict[str, str | None] = {}
        self._changed_at: dict[str, int] = {}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial; the searcher is hidden, as Ray refuses searchers that it does not use."""
        super().on_trial_add(_trial_proxy(tune_controller), trial)
        self._tags.setdefault(trial.trial_id, trial.experiment_tag)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Return the decision of Ray's scheduler, and record which trials got another config."""
        decision = super().on_trial_result(_trial_proxy(tune_controller), trial, result)
        if (changed_at := self._changed_at.get(trial.trial_id)) is not None:
            result[CONFIG_CHANGED_AT] = changed_at
        elif trial.experiment_tag != self._tags.get(trial.trial_id):  # how Ray marks it
            self._changed_at[trial.trial_id] = int(result.get(TRAINING_ITERATION, 0))
        if decision == TrialScheduler.STOP:
            self._retire(trial)
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Record the outcome; the trial is no donor any more."""
        super().on_trial_complete(tune_controller, trial, result)
        self._retire(trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Record the outcome; the trial is no donor any more."""
        super().on_trial_remove(tune_controller, trial)
        self._retire(trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a failed trial; it is added again for a retry."""
        super().on_trial_error(tune_controller, trial)
        self._retire(trial)

    def resume(self, resume: SchedulerResume) -> None:
        """Restore a state; a trial that had come further than its checkpoint goes back to it."""
        super().resume(resume)
        self._repeated.clear()
        for trial_id, trial in resume.trials.items():
            state, reached = self._trial_state.get(trial), resume.saved.get(trial_id, 0)
            if state is not None and state.last_train_time > reached:
                saved = trial.latest_checkpoint_result
                state.last_score = None
                state.last_result = saved.metrics if saved else None
                state.last_checkpoint = saved.checkpoint if saved else None
                state.last_train_time = reached
                state.last_perturbation_time = min(state.last_perturbation_time, reached)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state, in which an unfinished checkpoint is replaced by the one before it."""
        states = {}
        for trial, state in self._trial_state.items():
            states[trial] = copy.copy(state)
            if not isinstance(state.last_checkpoint, Checkpoint | None):
                states[trial].last_checkpoint = trial.checkpoint
        return super().__getstate__() | {"_trial_state": states}

    @property
    def needed_checkpoints(self) -> frozenset[str]:
        """Checkpoints of donors, from which other trials continue.

        While one is being made, all of its trial's are needed: the one before it may be the last.
        """
        needed = set()
        for trial, state in self._trial_state.items():
            if isinstance(state.last_checkpoint, Checkpoint):
                needed.add(state.last_checkpoint.path)
            elif state.last_checkpoint is not None:
                needed.add(trial.path)
        return frozenset(needed)

    def _write_outcome(self, trial: Trial, outcome: Outcome, cause: str | None) -> None:
        if (changed_at := self._changed_at.get(trial.trial_id)) is not None:
            trial.last_result[CONFIG_CHANGED_AT] = changed_at
        super()._write_outcome(trial, outcome, cause)

    def _retire(self, trial: Trial) -> None:
        """Exclude a finished trial as a donor, even while Tune still saves it."""
        if state := self._trial_state.get(trial):
            state.last_score = None
            state.last_checkpoint = None


class PbtScheduler(PopulationMixin):
    """Ray's ``PopulationBasedTraining`` with the mutations of a search space.

    A number is multiplied by one of the factors and clipped to its range, a choice moves to a
    neighbouring option, and now and then either is sampled anew (https://arxiv.org/abs/1711.09846).
    The trainable must save checkpoints and be able to continue from another trial's.

    Raises:
        InvalidSettingsError: The space does not contain the mutations, or they cannot change.
    """

    def __init__(
        self, objective: Objective, settings: PbtSettings, space: SearchSpace | None
    ) -> None:
        """Create Ray's scheduler."""
        mutations = select_mutations(settings.mutations, space, pbt_refusal, settings.name)
        PopulationBasedTraining.__init__(
            self,
            **comparison_arguments(objective),
            perturbation_interval=settings.perturbation_interval,
            hyperparam_mutations=mutations.to_ray(),
            quantile_fraction=settings.quantile_fraction,
            resample_probability=settings.resample_probability,
            perturbation_factors=settings.perturbation_factors,
            custom_explore_fn=mutations.clip,
        )
        self._configure(objective, settings)


def _trial_proxy(controller: Any) -> Any:
    """Return a controller without a searcher and without failed trials among the live ones."""
    if controller is None or isinstance(controller, ControllerProxy):
        return controller

    def get_live_trials() -> list[Trial]:
        return [trial for trial in controller.get_live_trials() if not trial.is_finished()]

    return ControllerProxy(controller, search_alg=None, get_live_trials=get_live_trials)
