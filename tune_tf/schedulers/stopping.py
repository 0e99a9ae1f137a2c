"""Schedulers of Ray that stop trials, with recorded trial outcomes; and FIFO."""

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandForBOHB, HyperBandScheduler

from tune_tf.config import SchedulerSettings
from tune_tf.config.scheduler_settings import ray_schedulers
from tune_tf.errors import InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.schedulers.outcome_mixin import OutcomeMixin, comparison_arguments
from tune_tf.tune_internals.scheduler_limits import compared_at, limit_in_hyperband


class FifoScheduler(OutcomeMixin):
    """Ray's ``FIFOScheduler`` with recorded trial outcomes; stops trials that diverge."""

    def __init__(self, objective: Objective, settings: SchedulerSettings) -> None:
        """Create Ray's scheduler."""
        super().__init__()
        self._configure(objective, settings)


class StoppingMixin(OutcomeMixin):
    """Mixin for a scheduler of Ray that only stops or pauses trials."""

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending, as far as known."""
        return compared_at(self)

    def next_decision(self, iteration: int) -> int:
        """Return the first iteration, from this one on, whose result may change what happens."""
        return super().next_decision(iteration) if self.rungs else iteration


class HyperbandMixin(StoppingMixin):
    """Mixin for Ray's ``HyperBandScheduler`` (https://arxiv.org/abs/1603.06560).

    A trial that reaches its bracket's milestone is paused, so its trainable must save checkpoints.
    Once all trials of the bracket are there, the best ``1 / reduction_factor`` continue to the next
    one. A trial that survives all halvings is complete, even if rounding puts Ray's last milestone
    below ``epochs``.

    A bracket continues with the trials suggested so far. Where fewer trials run concurrently than a
    bracket holds, hardly any is stopped: use ``HyperBandForBOHB`` there, which waits.
    """

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial to a bracket unless it has finished: the bracket would wait forever."""
        if not trial.is_finished():
            super().on_trial_add(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Return the trial to run next, after waking brackets that Ray has forgotten.

        Ray forgets a bracket whose last running trial fails or diverges after the first halving,
        and a trial that is still being saved when its bracket ends: paused trials would stay paused
        (ray#6780). The variant for BOHB finds them itself.
        """
        if not isinstance(self, HyperBandForBOHB):
            with self._mark_decision():
                for bracket in self._stalled_brackets():
                    self._process_bracket(tune_controller, bracket)
        return super().choose_trial_to_run(tune_controller, **options)

    def _stalled_brackets(self) -> list[Any]:
        """Return the brackets whose trials are all paused at the milestone."""
        bands = self._hyperbands
        brackets = (bracket for band in bands for bracket in band if bracket)
        return [
            bracket
            for bracket in brackets
            if (trials := bracket.current_trials())
            and all(trial.status == Trial.PAUSED for trial in trials)
            and not bracket.trials_to_unpause
            and bracket.cur_iter_done()
        ]

    def _limit(self, trial: Trial) -> int:
        return limit_in_hyperband(self, trial)


def make_stopping_scheduler(objective: Objective, settings: SchedulerSettings) -> OutcomeMixin:
    """Create a scheduler of Ray with its own arguments, and with recorded trial outcomes.

    Raises:
        InvalidSettingsError: Ray refuses an argument.
    """
    kind = {"asha": AsyncHyperBandScheduler, **ray_schedulers()}[settings.name]
    arguments = settings.arguments
    mixin = HyperbandMixin if issubclass(kind, HyperBandScheduler) else StoppingMixin

    class Scheduler(mixin, kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            kind.__init__(self, **comparison_arguments(objective), **arguments)
            self._configure(objective, settings)

    Scheduler.__name__ = kind.__name__
    try:
        return Scheduler()
    except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
        text = f"{kind.__name__} refuses its arguments: {error}; correct {', '.join(arguments)}"
        raise InvalidSettingsError(text) from error
