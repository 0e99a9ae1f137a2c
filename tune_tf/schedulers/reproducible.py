"""Scheduler that makes a sweep a function of its settings: it carries out an ordered sweep."""

import logging
from collections.abc import Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from tune_tf.errors import SweepConflictError
from tune_tf.outcome import STOP_CAUSE, STOPPED_BY_HAND, Outcome
from tune_tf.record import SweepFingerprint
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.ordered_sweep import OrderedSweep, lasting_metrics
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.space import flatten
from tune_tf.tune_internals.trial_state import (
    saved_iteration,
    set_trial_status,
    trial_number,
    was_lost,
)

_log = logging.getLogger(__name__)


class ReproducibleScheduler(OutcomeMixin):
    """Scheduler that trains trials to the end of their turns, and pauses them there.

    Its state follows from the results, which a resume reports again.

    Args:
        ordered: Decides; earlier results are reported to it already.
        num_workers: Trials that run at a time.
        environment: What results depend on besides the settings, by name.
        reasons: Why the results of earlier sessions cannot be compared with those of another sweep.
        num_created: Number of the trials of earlier sessions.
    """

    def __init__(
        self,
        ordered: OrderedSweep,
        *,
        num_workers: int,
        environment: Mapping[str, str],
        reasons: list[str],
        num_created: int = 0,
    ) -> None:
        """Make the decisions that the earlier results allow."""
        super().__init__()
        self._ordered = ordered
        self._num_workers = num_workers
        self._environment = environment
        self._reasons = reasons
        self._num_created = num_created
        self._failing: list[Trial] = []
        self._unchecked: list[Trial] = []
        self._configure(ordered.scheduler.objective, ordered.scheduler.settings)
        ordered.advance()

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending; empty if there are none."""
        return self._ordered.scheduler.rungs

    @property
    def fingerprint(self) -> SweepFingerprint:
        """Fingerprint of the sweep so far."""
        self._advance()
        digest, count = self._ordered.digest, self._ordered.num_results
        return SweepFingerprint(digest, count, self._environment, tuple(self._reasons))

    @property
    def end_reason(self) -> str | None:
        """Why results have ended the sweep; None if they have not."""
        self._advance()
        return self._ordered.end_reason

    @property
    def may_create(self) -> bool:
        """Whether the next trial is proposed already."""
        self._advance()
        return self._num_created < len(self._ordered.trials)

    @property
    def has_all_trials(self) -> bool:
        """Whether no trial remains to be created, nor to be continued."""
        if not self._ordered.has_all_trials or self.may_create:
            return False
        paused = any(trial.status == Trial.PAUSED for trial in self._trials.values())
        return self._ordered.is_over and not paused

    def propose(self, tune_controller: Any) -> dict[str, Any] | None:
        """Return the flat config of the next trial."""
        return self._ordered.config(self._num_created) if self.may_create else None

    def decided_end(self, trial_id: str) -> tuple[Outcome, str | None] | None:
        """Return outcome and cause of a trial that is stopped here; None if it is not."""
        stop = self._stops.get(trial_id)
        return (stop.outcome, stop.cause) if stop else None

    def note(self, reason: str) -> None:
        """Note why the fingerprint cannot be compared."""
        if reason not in self._reasons:
            self._reasons.append(reason)

    def explain(self, trial: Trial) -> str | None:
        """Return why the scheduler of the ordered sweep does what it does, if it can tell."""
        number = trial_number(trial)
        if number >= len(self._ordered.trials):
            return None
        return self._ordered.scheduler.explain(self._ordered.trials[number])

    def changed_state(self) -> bytes | None:
        """Return None: the state follows from the results."""
        return None

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Let a new or restored trial wait until a worker is to run it."""
        is_retry = trial.trial_id in self._trials
        super().on_trial_add(tune_controller, trial)
        self._num_created = max(self._num_created, trial_number(trial) + 1)
        self._unchecked.append(trial)
        # Tune would train a retry past its limit, if that is where its last checkpoint is.
        if not is_retry or not set_trial_status(tune_controller, trial, Trial.PAUSED):
            trial.set_status(Trial.PAUSED)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Add a result; pause the trial at the end of its turn."""
        decision = super().on_trial_result(tune_controller, trial, result)
        if hasattr(trial.placement_group_factory, "micro_batches"):  # of a retry
            self.note(
                f"trial {trial_number(trial)} ran out of memory and went on with other resources"
            )
        self._report(trial, result)
        if decision == TrialScheduler.STOP:
            return decision
        self._ordered.advance()
        limit = self._ordered.limit(trial_number(trial))
        goes_on = int(result[TRAINING_ITERATION]) < limit
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.PAUSE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Add the last result of a trial that ends by itself, or by request."""
        if Outcome.of_result(result) is Outcome.PRUNED and trial.trial_id not in self._stops:
            self.note(f"trial {trial_number(trial)} was {result.get(STOP_CAUSE, 'stopped')}")
        self._report_end(trial, result)
        super().on_trial_complete(tune_controller, trial, result)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Note a trial that may not be retried: its failure counts once the record has it."""
        self._failing.append(trial)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Stop paused trials that have ended by decision; return the one that is to run next.

        Raises:
            SweepConflictError: A trial has another config than the ordered sweep gives it.
        """
        self._advance()
        while self._unchecked:
            self._check_config(self._unchecked.pop())
        num_active = 0
        ready: list[tuple[int, int, Trial]] = []
        for trial in list(tune_controller.get_live_trials()):
            if trial.status != Trial.PAUSED:
                num_active += trial.status in (Trial.RUNNING, Trial.PENDING)
                continue
            number, iteration = trial_number(trial), saved_iteration(trial)
            num_left = self._ordered.limit(number) - iteration
            if num_left > 0:
                ready.append((self._ordered.turn(number), number, trial))
            elif self._ends_at(trial, iteration):
                with self._mark_decision():
                    tune_controller.stop_trial(trial)
        return min(ready)[-1] if ready and num_active < self._num_workers else None

    def _check_config(self, trial: Trial) -> None:
        number, config = trial_number(trial), self._ordered.flat(trial.config)
        if number >= len(self._ordered.trials) or config == self._ordered.config(number):
            return
        raise SweepConflictError(
            f"trial {number} has other parameters than a repetition gives it: "
            f"{value_differences(config, self._ordered.config(number))}. A version that proposals "
            "depend on has changed. Start another sweep, or resume with the versions of before"
        )

    def _ends_at(self, trial: Trial, iteration: int) -> bool:
        """Return whether a trial that waits has ended by decision, and note how."""
        outcome, cause = self._ordered.outcome(trial_number(trial))
        if outcome is None and not self._ordered.is_over:
            return False
        self._note_outcome(trial, outcome or Outcome.OUT_OF_BUDGET, iteration, cause)
        return True

    def _report(self, trial: Trial, result: Mapping[str, Any], *, done: bool = False) -> None:
        """Report a result, and compare it with that of an earlier session, if any."""
        number, iteration = trial_number(trial), int(result[TRAINING_ITERATION])
        metrics = lasting_metrics(result, self.objective.metric)
        self._ordered.report(number, iteration, metrics, done=done)
        known = self._ordered.result(number, iteration)
        if repr(known) != repr(metrics):
            text = "trial %d is not reproducible: iteration %d gave %s, and when repeated %s"
            _log.warning(text, number, iteration, known, metrics)
            self.note(f"trial {number} gave other results when it was repeated")

    def _report_end(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Report that a trial has ended, with its last result unless that is known."""
        number, iteration = trial_number(trial), int(result.get(TRAINING_ITERATION, 0))
        is_new = iteration > 0 and self._ordered.result(number, iteration) is None
        if trial.status != Trial.ERROR and is_new:
            self._report(trial, flatten(dict(result)), done=True)
        elif trial.status == Trial.ERROR or result.get(STOP_CAUSE) == STOPPED_BY_HAND:
            self._ordered.report_failure(number)

    def _advance(self) -> None:
        """Add failures that no kill can undo any more, then make all decisions."""
        failing, self._failing = self._failing, []
        for trial in failing:
            if trial.status == Trial.ERROR:  # else it is retried
                if was_lost(trial):
                    self.note(f"trial {trial_number(trial)} failed because its process was lost")
                self._ordered.report_failure(trial_number(trial))
        self._ordered.advance()


def value_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return text like ``tensorflow 2.21.0 and 2.20.0`` for the values that differ."""
    return ", ".join(
        f"{name} {one.get(name, 'unknown')} and {other.get(name, 'unknown')}"
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    )
