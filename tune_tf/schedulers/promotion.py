"""Asynchronous successive halving with promotion, and PASHA."""

import math
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tune_tf.config.scheduler_settings import AshaSettings, PashaSettings
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.schedulers.rungs import GrowingRungs, PromotionRungs, rung_iterations
from tune_tf.tune_internals.trial_processes import has_process, keep_process
from tune_tf.tune_internals.trial_state import set_trial_status


class PromotingScheduler(FIFOScheduler):
    """Base of a scheduler that pauses each trial at each rung and resumes those promoted.

    Once nothing runs, nothing can be promoted and the searcher is finished, the waiting trials are
    stopped. Where the searcher may not suggest because its concurrency limit counts waiting trials,
    as Ray's ``ConcurrencyLimiter`` does, the worst of the lowest rung is stopped to avoid a
    deadlock.

    A promoted trial becomes PENDING in Tune at once: the searcher, which Tune asks first, then sees
    that the freed slot is taken. Where its status cannot be set, promotions wait until Tune asks.
    """

    objective: Objective
    _trials: dict[str, Trial]
    _rungs: PromotionRungs
    _stops_waiting = False

    @property
    def supports_buffered_results(self) -> bool:
        """False: a trial would run on before Tune could pause it."""
        return False

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, which may be a retry of a failed one."""
        self._readmit(trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Pause a trial at a rung, unless it is the next to be promoted."""
        self._report(trial, result)
        iteration = int(result[TRAINING_ITERATION])
        if iteration >= self._rungs.rungs[-1].iteration:
            return TrialScheduler.STOP
        if not self._rungs.holds_at(trial.trial_id, iteration):
            return TrialScheduler.CONTINUE
        goes_on = self._fill_slot(tune_controller, arriving=trial)
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.PAUSE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Rank a trial's last result, and promote one for the slot that becomes free."""
        self._report(trial, result)
        self._fill_slot(tune_controller, ending=trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Free a trial's places for others, unless it was stopped here as the worst."""
        if not self._stops_waiting:
            self._fail(trial)
            self._fill_slot(tune_controller, ending=trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Free a trial's places for others."""
        self._fail(trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the trial to run next: the best promotable one, or else the one nearest the top.

        Promoted and interrupted trials that have not started yet precede new ones. A trial whose
        own process is still starting waits for it: in another's, it would end its own.
        """
        next_trial = self._next_in_queue(tune_controller)
        if next_trial is not None:
            self._rungs.promote(next_trial.trial_id)
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
        """Return how many trials reached each rung."""
        return f"Using promotion: {self._rungs}"

    def _report(self, trial: Trial, result: dict[str, Any]) -> None:
        value = float(result[self.objective.metric])
        loss = value if self.objective.mode == "min" else -value
        self._rungs.report(trial.trial_id, int(result[TRAINING_ITERATION]), loss)

    def _readmit(self, trial: Trial) -> None:
        """Restore the places of a failed trial that is retried."""
        self._rungs.readmit(trial.trial_id)

    def _fail(self, trial: Trial) -> None:
        """Free the places of a trial that failed, or was removed."""
        self._rungs.fail(trial.trial_id)

    def _waits(self, trial_id: str) -> bool:
        """Return whether a trial is paused at its rung, rather than by others between rungs."""
        paused = self._trials[trial_id].status == Trial.PAUSED
        return paused and self._rungs.holds(trial_id)

    def _next_up(
        self, tune_controller: Any, arriving: Trial | None = None, ending: Trial | None = None
    ) -> Trial | None:
        """Return the waiting or arriving trial that is to be promoted in the slot of another."""
        arriving_id = arriving.trial_id if arriving else None
        next_trial = self._rungs.next_up(lambda each: each == arriving_id or self._waits(each))
        return self._trials[next_trial] if next_trial else None

    def _next_in_queue(self, tune_controller: Any) -> Trial | None:
        """Return the waiting trial that is to be promoted where no trial has left a slot."""
        return self._next_up(tune_controller)

    def _fill_slot(
        self, tune_controller: Any, arriving: Trial | None = None, ending: Trial | None = None
    ) -> bool:
        """Promote a trial before the searcher is asked for one; return if it is the arriving one.

        The arriving trial is paused unless it is promoted; the ending one leaves its slot, too.
        """
        next_trial = self._next_up(tune_controller, arriving, ending)
        if next_trial is None:
            return False
        if next_trial is arriving or set_trial_status(tune_controller, next_trial, Trial.PENDING):
            self._rungs.promote(next_trial.trial_id)
        if ending and has_process(tune_controller, ending):
            keep_process(tune_controller)
        return next_trial is arriving

    def _stop_waiting(self, tune_controller: Any) -> None:
        """Stop trials whose promotion is impossible, or the worst one if that frees a slot."""
        search = tune_controller.search_alg
        waiting = [trial for name, trial in self._trials.items() if self._waits(name)]
        if not search.is_finished():
            last = self._rungs.worst_waiting(self._waits)
            is_limited = _counts_waiting(search, len(waiting))
            waiting = [self._trials[last]] if is_limited and last is not None else []
        self._stops_waiting = True
        try:
            for trial in waiting:
                tune_controller.stop_trial(trial)
        finally:
            self._stops_waiting = False


class PromotionAshaScheduler(OutcomeMixin, PromotingScheduler):
    """ASHA of the paper: every trial is paused at each rung, and the best are promoted.

    Rungs are at ``grace_period * reduction_factor ** k`` iterations and at ``max_t``, where trials
    end. When a slot is free, the best waiting trial among the top ``1 / reduction_factor`` of the
    highest such rung continues from its checkpoint; a new trial starts only if there is none
    (https://arxiv.org/abs/1810.05934, algorithm 2). A trial that would be promoted at once
    continues without a pause. So the trainable must save checkpoints, and the searcher must not
    count paused trials as concurrent; :class:`~tune_tf.searchers.OptunaSearcher` does not. Trials
    that still wait at the end of the sweep are stopped.

    It suits one slot and few epochs: in simulations of random search (5 problems, 40 seeds) a
    budget of 5 full runs gave 38 trials instead of stopping's 20, and the better full run in 68 %
    of them; at 40 full runs there was no difference, and with 4 slots and 5 full runs hardly any
    trial reached ``max_t``, which stopping's first ones always do.
    """

    settings: AshaSettings | PashaSettings
    _rungs_class = PromotionRungs

    def __init__(self, objective: Objective, settings: AshaSettings | PashaSettings) -> None:
        """Create the rungs."""
        super().__init__()
        iterations = rung_iterations(
            settings.grace_period, settings.reduction_factor, settings.max_t
        )
        self._rungs = self._rungs_class(iterations, settings.reduction_factor)
        self._configure(objective, settings)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending; the last is ``max_t``."""
        return tuple(rung.iteration for rung in self._rungs.rungs)

    def _limit(self, trial: Trial) -> int:
        return self._rungs.limit


class PashaScheduler(PromotionAshaScheduler):
    """PASHA: promotion in which ``max_t`` starts at the second rung and grows on demand.

    See :class:`~tune_tf.schedulers.rungs.GrowingRungs` for when it grows.

    A trial at the highest open rung at the end of the sweep ran as far as any could and is
    completed; those waiting below are pruned. So all completed trials ran the same number of
    iterations, at most ``max_t``: train the best one further for a final model.
    """

    settings: PashaSettings
    _rungs_class = GrowingRungs


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
