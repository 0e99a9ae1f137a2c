"""Scheduler that pauses trials and goes on with those that may become the best."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tune_tf.config.scheduler_settings import FreezeThawSettings
from tune_tf.constraint import Constraint, is_feasible
from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.continuation_rule import ContinuationRule
from tune_tf.schedulers.gaussian_process import one_thread
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.rungs import Rungs, rung_iterations
from tune_tf.schedulers.unit_space import UnitSpace
from tune_tf.space import SearchSpace, flatten
from tune_tf.tune_internals.trial_processes import has_process, keep_process
from tune_tf.tune_internals.trial_state import set_trial_status


class _PausingScheduler(FIFOScheduler):
    """What :class:`FreezeThawScheduler` answers to Tune, without outcomes and a resume.

    Once nothing runs, none is chosen and the searcher is finished, the waiting trials are stopped.
    Where the searcher may not suggest because its concurrency limit counts waiting trials, as Ray's
    ``ConcurrencyLimiter`` does, the least promising one is stopped to avoid a deadlock.

    A chosen trial becomes PENDING in Tune at once: the searcher, which Tune asks first, then sees
    that the freed slot is taken. Where its status cannot be set, it waits until Tune asks.
    """

    objective: Objective
    settings: FreezeThawSettings
    _trials: dict[str, Trial]
    _stops: dict[str, Any]
    _stops_waiting = False

    def __init__(
        self,
        settings: FreezeThawSettings,
        space: SearchSpace,
        unit_space: UnitSpace,
        constraints: Sequence[Constraint],
    ) -> None:
        super().__init__()
        iterations = rung_iterations(
            settings.grace_period, settings.reduction_factor, settings.epochs
        )
        self._rungs = Rungs(iterations)
        self._rule = ContinuationRule(unit_space, iterations, settings.seed)
        self._paths = tuple(space.parameters)
        self._constraints = tuple(constraints)
        self._num_slots = 1
        self._settled: list[str] | None = None

    @property
    def supports_buffered_results(self) -> bool:
        """False: a trial would run on before Tune could pause it."""
        return False

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, which may be a retry of a failed one."""
        self._rule.add(trial.trial_id, flatten(trial.config, self._paths))
        self._num_slots = max(self._num_slots, len(self._active()))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Pause a trial at a rung, unless it is to go on; stop one of too many paused."""
        self._report(trial, result)
        iteration = int(result[TRAINING_ITERATION])
        if iteration >= self._rungs.iterations[-1]:
            return TrialScheduler.STOP
        if not self._rungs.holds_at(trial.trial_id, iteration):
            return TrialScheduler.CONTINUE
        if self._fill_slot(tune_controller, arriving=trial):
            return TrialScheduler.CONTINUE
        waiting = self._waiting(trial)
        if len(waiting) > self.settings.max_paused:
            surplus = self._trials[self._rule.least_promising(waiting)]
            if surplus is trial:
                return TrialScheduler.STOP
            tune_controller.stop_trial(surplus)
        return TrialScheduler.PAUSE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Rank a trial's last result, and choose one for the slot that becomes free."""
        self._report(trial, result)
        self._fill_slot(tune_controller, ending=trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Count a removed trial as failed, unless it was stopped here as the worst."""
        if not self._stops_waiting:
            self._fail(trial)
            self._fill_slot(tune_controller, ending=trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Count a trial as failed."""
        self._fail(trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the trial to run next: a waiting one, or else the one nearest the top.

        Chosen and interrupted trials that have not started yet precede new ones. A trial whose
        own process is still starting waits for it: in another's, it would end its own.
        """
        next_trial = self._next_in_queue(tune_controller)
        if next_trial is not None:
            self._rungs.leave(next_trial.trial_id)
            set_trial_status(tune_controller, next_trial, Trial.PENDING)
            return next_trial
        ready = [
            trial
            for trial in tune_controller.get_trials()
            if trial.status in (Trial.PENDING, Trial.PAUSED) and not self._waits(trial.trial_id)
        ]
        if ready:
            without = [trial for trial in ready if not has_process(tune_controller, trial)]
            return max(without or ready, key=lambda trial: self._rungs.height(trial.trial_id))
        if not any(trial.status == Trial.RUNNING for trial in tune_controller.get_trials()):
            self._stop_waiting(tune_controller)
        return None

    def debug_string(self) -> str:
        """Return how many trials stand at each rung."""
        return f"Trials by rung: {self._rungs}"

    def _report(self, trial: Trial, result: dict[str, Any]) -> None:
        height = self._rungs.height(trial.trial_id)
        self._rungs.report(trial.trial_id, int(result[TRAINING_ITERATION]))
        reached = self._rungs.height(trial.trial_id)
        if result.get("done") and trial.trial_id not in self._stops:
            reached = len(self._rungs.iterations)  # it ended by itself: no result is to come
        if reached > height:
            value = float(result[self.objective.metric])
            loss = value if self.objective.mode == "min" else -value
            if not is_feasible(self._constraints, result):
                loss = max(loss, *map(self._rule.worst_loss, range(reached)))
            self._rule.report(trial.trial_id, reached - 1, loss)
        self._settled = None

    def _fail(self, trial: Trial) -> None:
        if trial.status in (Trial.RUNNING, Trial.ERROR):  # as of one that diverged
            self._rule.fail(trial.trial_id)
        self._settled = None

    def _fill_slot(
        self, tune_controller: Any, arriving: Trial | None = None, ending: Trial | None = None
    ) -> bool:
        """Choose a trial before the searcher is asked for one; return if it is the arriving one.

        The arriving trial is paused unless it is chosen; the ending one leaves its slot, too.
        """
        running = self._active(leaving=arriving or ending)
        if len(running) >= self._num_slots:
            return False  # it was a paused one that ended
        may_start = not tune_controller.search_alg.is_finished()
        next_trial = self._decide(self._waiting(arriving), running, may_start=may_start)
        if next_trial is None:
            return False
        if next_trial is arriving or set_trial_status(tune_controller, next_trial, Trial.PENDING):
            self._rungs.leave(next_trial.trial_id)
        if ending and has_process(tune_controller, ending):
            keep_process(tune_controller)
        return next_trial is arriving

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

    def _stop_waiting(self, tune_controller: Any) -> None:
        """Stop trials with which nothing goes on, or the least promising if that frees a slot."""
        search = tune_controller.search_alg
        waiting = self._waiting()
        if not search.is_finished():
            is_limited = waiting and _counts_waiting(search, len(waiting))
            waiting = [self._rule.least_promising(waiting)] if is_limited else []
        self._stops_waiting = True
        try:
            for name in waiting:
                tune_controller.stop_trial(self._trials[name])
        finally:
            self._stops_waiting = False

    def _waits(self, trial_id: str) -> bool:
        """Return whether a trial is paused at its rung, rather than by others between rungs."""
        paused = self._trials[trial_id].status == Trial.PAUSED
        return paused and self._rungs.holds(trial_id)

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


class FreezeThawScheduler(OutcomeMixin, _PausingScheduler):
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
        unit_space = UnitSpace(space) if space is not None else None
        if space is None or not unit_space:
            text = (
                "freeze_thaw models the results of configs: pass the search space as space=..., "
                "with a parameter that is not a constant"
            )
            raise InvalidSettingsError(ErrorDetail("space", text))
        super().__init__(settings, space, unit_space, constraints)
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
        with one_thread():
            return self._rule.propose(self._active())

    def explain(self, trial: Trial) -> str | None:
        """Return a trial's chance to beat the best full run, as of the last decision on it."""
        chance, best = self.chances.get(trial.trial_id), self.best_value
        if chance is None or best is None:
            return None
        return f"chance to beat {best:.4g}: {chance:.0%}"


def _counts_waiting(search: Any, num_waiting: int) -> bool:
    """Return whether the concurrency limit of a searcher is exhausted by waiting trials.

    One that is closed for a while will suggest again, so nothing needs to be stopped for it.
    """
    layers = []
    while search is not None:
        layers.append(search)
        search = getattr(search, "searcher", None)
    if any(getattr(layer, "is_closed", False) for layer in layers):
        return False
    limits = (getattr(layer, "max_concurrent", None) or math.inf for layer in layers)
    return any(limit <= num_waiting for limit in limits)
