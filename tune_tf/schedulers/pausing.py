"""Base of a scheduler that pauses trials at rungs and decides which of them go on."""

import math
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.rungs import Rungs
from tune_tf.tune_internals.trial_processes import has_process, keep_process
from tune_tf.tune_internals.trial_state import set_trial_status


class PausingScheduler(FIFOScheduler):
    """Base of a scheduler that pauses each trial at each rung and goes on with chosen ones.

    Once nothing runs, none is chosen and the searcher is finished, the waiting trials are stopped.
    Where the searcher may not suggest because its concurrency limit counts waiting trials, as Ray's
    ``ConcurrencyLimiter`` does, the worst of the lowest rung is stopped to avoid a deadlock.

    A chosen trial becomes PENDING in Tune at once: the searcher, which Tune asks first, then sees
    that the freed slot is taken. Where its status cannot be set, it waits until Tune asks.
    """

    objective: Objective
    _trials: dict[str, Trial]
    _rungs: Rungs
    _stops_waiting = False

    @property
    def supports_buffered_results(self) -> bool:
        """False: a trial would run on before Tune could pause it."""
        return False

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, which may be a retry of a failed one."""
        self._readmit(trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Pause a trial at a rung, unless it is the one to go on."""
        self._report(trial, result)
        iteration = int(result[TRAINING_ITERATION])
        if iteration >= self._rungs.iterations[-1]:
            return TrialScheduler.STOP
        if not self._rungs.holds_at(trial.trial_id, iteration):
            return TrialScheduler.CONTINUE
        goes_on = self._fill_slot(tune_controller, arriving=trial)
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.PAUSE

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
        value = float(result[self.objective.metric])
        loss = value if self.objective.mode == "min" else -value
        self._rungs.report(trial.trial_id, int(result[TRAINING_ITERATION]), loss)

    def _readmit(self, trial: Trial) -> None:
        """Take up a trial, which may be a retry of a failed one."""
        raise NotImplementedError

    def _fail(self, trial: Trial) -> None:
        """Note that a trial failed, or was removed."""
        raise NotImplementedError

    def _waits(self, trial_id: str) -> bool:
        """Return whether a trial is paused at its rung, rather than by others between rungs."""
        paused = self._trials[trial_id].status == Trial.PAUSED
        return paused and self._rungs.holds(trial_id)

    def _next_up(
        self, tune_controller: Any, arriving: Trial | None = None, ending: Trial | None = None
    ) -> Trial | None:
        """Return the waiting or arriving trial that goes on in the slot of another."""
        raise NotImplementedError

    def _next_in_queue(self, tune_controller: Any) -> Trial | None:
        """Return the waiting trial that goes on where no trial has left a slot."""
        raise NotImplementedError

    def _fill_slot(
        self, tune_controller: Any, arriving: Trial | None = None, ending: Trial | None = None
    ) -> bool:
        """Choose a trial before the searcher is asked for one; return if it is the arriving one.

        The arriving trial is paused unless it is chosen; the ending one leaves its slot, too.
        """
        next_trial = self._next_up(tune_controller, arriving, ending)
        if next_trial is None:
            return False
        if next_trial is arriving or set_trial_status(tune_controller, next_trial, Trial.PENDING):
            self._rungs.leave(next_trial.trial_id)
        if ending and has_process(tune_controller, ending):
            keep_process(tune_controller)
        return next_trial is arriving

    def _stop_waiting(self, tune_controller: Any) -> None:
        """Stop trials with which nothing goes on, or the worst one if that frees a slot."""
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
