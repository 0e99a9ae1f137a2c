"""Scheduler that pauses trials and goes on with those that may become the best."""

from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.config.scheduler_settings import FreezeThawSettings
from tune_tf.constraint import Constraint, is_feasible
from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.continuation_rule import ContinuationRule
from tune_tf.schedulers.gaussian_process import one_thread
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.pausing import PausingScheduler
from tune_tf.schedulers.rungs import Rungs, rung_iterations
from tune_tf.schedulers.unit_space import UnitSpace
from tune_tf.space import SearchSpace, flatten


class FreezeThawScheduler(OutcomeMixin, PausingScheduler):
    """Freeze-thaw: every trial is paused at each rung, and those that may become the best go on.

    Rungs are those of ASHA. Nothing is stopped for good: a model of learning curves over configs
    predicts how each paused trial would end (https://arxiv.org/abs/1406.3896 names the idea), and
    :class:`~tune_tf.schedulers.continuation_rule.ContinuationRule` decides what a free slot does.
    So the trainable must save checkpoints, and the searcher must not count paused trials as
    concurrent; :class:`~tune_tf.searchers.OptunaSearcher` does not. Its sampler ``freeze_thaw``
    tries what the same model proposes.

    Once the searcher is finished, trials go on while their chance to beat the best full run is
    ``min_chance`` or more; then those that are still paused are stopped. Of more than
    ``max_paused``, each of which keeps a checkpoint, the one with the least chance is stopped.

    Raises:
        InvalidSettingsError: There is no search space, or it has constants only.
    """

    settings: FreezeThawSettings

    def __init__(
        self,
        objective: Objective,
        settings: FreezeThawSettings,
        space: SearchSpace | None,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        """Create the rungs and the model."""
        super().__init__()
        unit_space = UnitSpace(space) if space is not None else None
        if not unit_space:
            text = (
                "freeze_thaw models the results of configs: pass the search space as space=..., "
                "with a parameter that is not a constant"
            )
            raise InvalidSettingsError(ErrorDetail("space", text))
        iterations = rung_iterations(
            settings.grace_period, settings.reduction_factor, settings.epochs
        )
        self._rungs = Rungs(iterations)
        self._rule = ContinuationRule(unit_space, iterations, settings.seed)
        self._paths = tuple(space.parameters) if space else ()
        self._constraints = tuple(constraints)
        self._num_slots = 1
        self._settled: list[str] | None = None
        self._configure(objective, settings)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are paused, ascending; the last is ``epochs``."""
        return self._rungs.iterations

    @property
    def chances(self) -> Mapping[str, float]:
        """Chance to beat the best full run, as last predicted, of each trial that was paused."""
        return self._rule.chances

    @property
    def best_value(self) -> float | None:
        """Best value of a full run; None before the first."""
        loss = self._rule.best_loss
        return -loss if loss is not None and self.objective.mode == "max" else loss

    def propose(self, tune_controller: Any) -> dict[str, Any] | None:
        """Return the flat config that a new trial should have; None for a random one."""
        self._restore_state(tune_controller)
        with one_thread():
            return self._rule.propose(self._active())

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, which may be a retry of a failed one."""
        super().on_trial_add(tune_controller, trial)
        if self._saved_state is None:
            self._num_slots = max(self._num_slots, len(self._active()))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Pause a trial at a rung, unless it is to go on; stop one of too many paused."""
        decision = super().on_trial_result(tune_controller, trial, result)
        waiting = self._waiting(trial) if decision == TrialScheduler.PAUSE else []
        if len(waiting) <= self.settings.max_paused:
            return decision
        surplus = self._trials[self._rule.least_promising(waiting)]
        if surplus is trial:
            self._stops[trial.trial_id] = self._stop_at(trial, int(result[TRAINING_ITERATION]))
            return TrialScheduler.STOP
        with self._mark_decision():
            tune_controller.stop_trial(surplus)
        return decision

    def _report(self, trial: Trial, result: dict[str, Any]) -> None:
        height = self._rungs.height(trial.trial_id)
        super()._report(trial, result)
        reached = self._rungs.height(trial.trial_id)
        if result.get("done") and trial.trial_id not in self._stops:
            reached = len(self.rungs)  # it ended by itself: no result is to come
        if reached > height:
            value = float(result[self.objective.metric])
            loss = value if self.objective.mode == "min" else -value
            if not is_feasible(self._constraints, result):
                loss = max(loss, *map(self._rule.worst_loss, range(reached)))
            self._rule.report(trial.trial_id, reached - 1, loss)
        self._settled = None

    def _readmit(self, trial: Trial) -> None:
        self._rule.add(trial.trial_id, flatten(trial.config, self._paths))

    def _fail(self, trial: Trial) -> None:
        if trial.status in (Trial.RUNNING, Trial.ERROR):  # as of one that diverged
            self._rule.fail(trial.trial_id)
        self._settled = None

    def _next_up(
        self, tune_controller: Any, arriving: Trial | None = None, ending: Trial | None = None
    ) -> Trial | None:
        """Return the trial to go on with in the slot that the arriving or ending one leaves."""
        running = self._active(leaving=arriving or ending)
        if len(running) >= self._num_slots:
            return None  # it was a paused one that ended
        may_start = not tune_controller.search_alg.is_finished()
        return self._decide(self._waiting(arriving), running, may_start=may_start)

    def _next_in_queue(self, tune_controller: Any) -> Trial | None:
        """Return the trial to go on with in a slot for which the searcher has none."""
        states = [trial.status for trial in self._trials.values()]
        num_pending = states.count(Trial.PENDING)
        if num_pending + states.count(Trial.RUNNING) >= self._num_slots:
            return None  # also while one is saved before its pause: the searcher is asked next
        if num_pending and not tune_controller.search_alg.is_finished():
            return None  # the searcher may not have been asked
        waiting = self._waiting()
        if waiting == self._settled:
            return None
        next_trial = self._decide(waiting, self._active(), may_start=False)
        self._settled = waiting if next_trial is None else None
        return next_trial

    def _decide(self, waiting: list[str], running: list[str], *, may_start: bool) -> Trial | None:
        with one_thread():
            chosen = self._rule.decide(
                waiting, running, may_start=may_start, min_chance=self.settings.min_chance
            )
        return self._trials[chosen] if chosen else None

    def explain(self, trial: Trial) -> str | None:
        """Return a trial's chance to beat the best full run, as of the last decision on it."""
        chance, best = self.chances.get(trial.trial_id), self.best_value
        if chance is None or best is None:
            return None
        return f"chance to beat {best:.4g}: {chance:.0%}"

    def _waiting(self, arriving: Trial | None = None) -> list[str]:
        """Return the paused trials, and the arriving one."""
        return [
            name for name, trial in self._trials.items() if trial is arriving or self._waits(name)
        ]

    def _active(self, leaving: Trial | None = None) -> list[str]:
        """Return the trials that run or are about to, without those that leave their slots."""

        def is_leaving(trial: Trial) -> bool:  # also while it is saved before its pause
            return trial is leaving or self._rungs.holds(trial.trial_id)

        return [
            name
            for name, trial in self._trials.items()
            if trial.status == Trial.PENDING
            or (trial.status == Trial.RUNNING and not is_leaving(trial))
        ]
