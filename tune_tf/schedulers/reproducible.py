"""Scheduler that makes a sweep a function of its settings: each decision waits for its turn."""

import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import SHOULD_CHECKPOINT, TIME_THIS_ITER_S
from ray.tune.schedulers import TrialScheduler

from tune_tf.atomic_files import append_line, read_json_lines
from tune_tf.errors import SweepConflictError
from tune_tf.events import SweepFingerprint
from tune_tf.outcome import CONFIG_CHANGED_AT, STOP_CAUSE, STOPPED_BY_HAND, Outcome
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.schedulers.logical_sweep import LogicalSweep, Position, logical_metrics
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.space import flatten, nest
from tune_tf.tune_internals.trial_state import (
    begin_segment,
    find_checkpoint,
    forget_wait,
    latest_result,
    restore_result,
    save_trial,
    saved_iteration,
    set_trial_status,
    train_trial,
    trial_number,
    trial_segment,
    was_lost,
)

_log = logging.getLogger(__name__)

_SWITCH_S = 0.1
"""Seconds that it takes until another trial trains in a process.

A trial waits as long before another takes its process, unless an epoch takes more than twice that,
and with it the others' epochs that it waits for.
"""
_STUCK_S = 2.0
"""Seconds that a trial waits before one without a process takes its: a node may be lost."""


class ReproducibleScheduler(OutcomeMixin):
    """Scheduler that carries out the decisions of a sweep in logical time.

    A trial trains as far as no decision depends on it, then it waits for its turn, and is paused if
    another one can train meanwhile: that whose next result is due first. Each result is appended to
    a file before anything else learns of it, so after a kill the sweep in logical time is repeated.

    Args:
        sweep: The sweep in logical time.
        num_workers: Trials that run at a time.
        file: The known results, each a line of JSON.
    """

    def __init__(self, sweep: LogicalSweep, *, num_workers: int, file: Path) -> None:
        """Read the known results."""
        super().__init__()
        self._sweep = sweep
        self._num_workers = num_workers
        self._file = file
        self._by_number: dict[int, Trial] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._waiting: dict[str, tuple[Trial, float]] = {}  # since when
        self._failing: list[Trial] = []
        self._unchecked: list[Trial] = []
        self._environment: Mapping[str, str] = {}
        self._reasons: list[str] = []
        for line in read_json_lines(file):
            if "position" in line:
                self._add(Position(*line["position"]), line["metrics"])
            else:
                self._environment = line.get("environment", self._environment)
                self._reasons += line.get("reasons", ())
        self.num_to_keep = sweep.scheduler.num_to_keep
        self._configure(sweep.scheduler.objective, sweep.scheduler.settings)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Iterations at which trials are compared, ascending; empty if there are none."""
        return self._sweep.scheduler.rungs

    @property
    def needed_checkpoints(self) -> frozenset[str]:
        """Checkpoints from which other trials continue, or may."""
        if self.num_to_keep is not None:
            return frozenset()
        positions = self._sweep.donor_positions()
        for number, trial in self._by_number.items():
            if not trial.is_finished() and number < self._sweep.num_created:
                segments = range(
                    max(trial_segment(trial), 1), self._sweep.assignment(number).segment + 1
                )
                positions |= {self._sweep.start(number, segment) for segment in segments}
        saved = (self._checkpoint(position) for position in positions)
        return frozenset(each.checkpoint.path for each in saved if each is not None)

    @property
    def sweep(self) -> LogicalSweep:
        """The sweep in logical time, as far as the results go."""
        self._advance()
        return self._sweep

    @property
    def fingerprint(self) -> SweepFingerprint:
        """Fingerprint of the sweep so far."""
        digest, num_events = self.sweep.fingerprint, len(self._sweep.events)
        return SweepFingerprint(digest, num_events, self._environment, tuple(self._reasons))

    @property
    def end_reason(self) -> str | None:
        """Why a result has ended the sweep, in logical time; None if none has."""
        self._advance()
        return self._sweep.end_reason

    @property
    def may_create(self) -> bool:
        """Whether the next trial is proposed already."""
        self._advance()
        return len(self._by_number) < self._sweep.num_created

    @property
    def has_all_trials(self) -> bool:
        """Whether no trial remains to be created, nor to be continued."""
        if not self._sweep.has_all_trials or self.may_create:
            return False
        trials = self._by_number.values()
        return self._sweep.has_ended and all(trial.status != Trial.PAUSED for trial in trials)

    def propose(self, tune_controller: Any) -> dict[str, Any] | None:
        """Return the flat config of the next trial."""
        return self._sweep.config(len(self._by_number)) if self.may_create else None

    def decided_end(self, trial_id: str) -> tuple[Outcome, str | None] | None:
        """Return outcome and cause of a trial that is stopped here; None if it is not."""
        stop = self._stops.get(trial_id)
        return (stop.outcome, stop.cause) if stop else None

    def begin_session(self, environment: Mapping[str, str]) -> None:
        """Write to the file what results depend on besides settings, if that is new."""
        if environment == self._environment:
            return
        if self._environment:
            changes = value_differences(self._environment, environment)
            self.note(f"it was resumed with another environment: {changes}")
        self._environment = environment
        self._append({"environment": environment})

    def note(self, reason: str) -> None:
        """Note why the fingerprint cannot be compared, also in the file."""
        if reason not in self._reasons:
            self._reasons.append(reason)
            self._append({"reasons": [reason]})

    def explain(self, trial: Trial) -> str | None:
        """Return why the scheduler in logical time does what it does, if it can tell."""
        number = trial_number(trial)
        if number >= self._sweep.num_created:
            return None
        return self._sweep.scheduler.explain(self._sweep.trial(number))

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Write nothing: the state follows from the results."""
        Path(checkpoint_path).write_bytes(b"")

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Do nothing: the state follows from the results."""

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Let a new or restored trial wait until a worker is to run it."""
        is_retry = trial.trial_id in self._trials
        super().on_trial_add(tune_controller, trial)
        self._by_number[trial_number(trial)] = trial
        self._unchecked.append(trial)
        if trial.status == Trial.PENDING and is_retry:
            # Tune would train it past its limit, if that is where its last checkpoint is.
            set_trial_status(tune_controller, trial, Trial.PAUSED)
        elif trial.status == Trial.PENDING:
            trial.set_status(Trial.PAUSED)
            if (result := restore_result(trial)) is not None:
                self._add_saved(trial, flatten(result))
        elif trial.is_finished():
            self._add_end(trial, flatten(latest_result(trial)))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Add a result; return what is to be done as far as it is decided."""
        decision = super().on_trial_result(tune_controller, trial, result)
        forget_wait(tune_controller, trial)
        number, segment = trial_number(trial), trial_segment(trial)
        iteration = int(result[TRAINING_ITERATION])
        if segment:
            result[CONFIG_CHANGED_AT] = self._sweep.reached(number, 0)
        if hasattr(trial.placement_group_factory, "micro_batches"):  # of a retry
            self.note(f"trial {number} ran out of memory and went on with other resources")
        position = Position(number, segment, iteration)
        self._report(position, logical_metrics(result))
        if decision == TrialScheduler.STOP:
            return decision
        goes_on = iteration < self._train_limit(number, segment)
        # Tune saves where the trial asks for it, and loses a decision if it saves twice.
        may_save = self.num_to_keep is None and not result.get(SHOULD_CHECKPOINT)
        if may_save and (not goes_on or position in self._sweep.needed_positions()):
            save_trial(tune_controller, trial)  # others may continue from here
        if goes_on:
            return TrialScheduler.CONTINUE
        if self._ends_at(trial, iteration):
            return TrialScheduler.STOP
        self._waiting[trial.trial_id] = trial, time.monotonic()
        return TrialScheduler.NOOP

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Add the last result of a trial that ends by itself, or by request."""
        if Outcome.of_result(result) is Outcome.PRUNED and trial.trial_id not in self._stops:
            self.note(f"trial {trial_number(trial)} was {result.get(STOP_CAUSE, 'stopped')}")
        self._add_end(trial, result)
        super().on_trial_complete(tune_controller, trial, result)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Note a trial that may not be retried: its failure counts once the event log has it."""
        self._failing.append(trial)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any, **options: Any) -> Trial | None:
        """Carry out what is decided on waiting trials; return the one that is to run next.

        Raises:
            SweepConflictError: A trial has another config than the sweep in logical time gives it.
        """
        self._advance()
        while self._unchecked:
            self._check_config(self._unchecked.pop())
        for trial, _ in list(self._waiting.values()):
            self._carry_out(tune_controller, trial)
        for trial in list(tune_controller.get_live_trials()):
            self._begin_segments(trial)  # before others end: they may have to repeat what is lost
        num_active = num_pending = 0
        ready: list[tuple[float, int, Trial]] = []
        for trial in list(tune_controller.get_live_trials()):
            if trial.status != Trial.PAUSED:
                num_active += trial.status in (Trial.RUNNING, Trial.PENDING)
                num_pending += trial.status == Trial.PENDING
                continue
            number, iteration = trial_number(trial), saved_iteration(trial)
            if iteration < self._train_limit(number, trial_segment(trial)):
                ready.append((self._sweep.assignment(number).due, number, trial))
            elif self._is_lost(trial) or self._ends_at(trial, iteration):
                with self._mark_decision():
                    tune_controller.stop_trial(trial)
        if ready and num_active < self._num_workers:
            return min(ready)[-1]
        if ready or num_pending:
            self._pause_longest(tune_controller, _SWITCH_S if ready else _STUCK_S)
        return None

    def _check_config(self, trial: Trial) -> None:
        number, config = trial_number(trial), flatten(trial.config)
        if number >= self._sweep.num_created:
            return
        expected = self._sweep.config(number, trial_segment(trial))
        if config != expected:
            raise SweepConflictError(
                f"trial {number} has other parameters than a repetition gives it: "
                f"{value_differences(config, expected)}. A version that proposals depend on has "
                "changed. Start another sweep, or resume with the versions of before"
            )

    def _pause_longest(self, tune_controller: Any, patience_s: float) -> None:
        """Pause the trial that has waited longest, if that is long enough, for one that trains."""
        now = time.monotonic()
        for trial, since in self._waiting.values():
            epoch_s = trial.last_result.get(TIME_THIS_ITER_S, 0)
            longest_s = 0 if epoch_s > 2 * patience_s else patience_s
            if not trial.is_saving and now - since >= longest_s:
                self._pause(tune_controller, trial)
                break

    def _carry_out(self, tune_controller: Any, trial: Trial) -> None:
        """Do what is decided on a trial that waits in its process, if anything is."""
        number, segment = trial_number(trial), trial_segment(trial)
        iteration = int(trial.last_result[TRAINING_ITERATION])
        if trial.status != Trial.RUNNING:  # it has failed meanwhile, or was stopped
            del self._waiting[trial.trial_id]
        elif iteration < self._train_limit(number, segment):
            if train_trial(tune_controller, trial):
                del self._waiting[trial.trial_id]
            else:
                self._pause(tune_controller, trial)
        elif self._ends_at(trial, iteration):
            del self._waiting[trial.trial_id]
            with self._mark_decision():
                tune_controller.stop_trial(trial)
        elif segment < self._sweep.assignment(number).segment and not trial.is_saving:
            self._pause(tune_controller, trial)

    def _pause(self, tune_controller: Any, trial: Trial) -> None:
        del self._waiting[trial.trial_id]
        tune_controller.pause_trial(trial)

    def _write_outcome(self, trial: Trial, outcome: Outcome, cause: str | None) -> None:
        if trial_segment(trial):
            trial.last_result[CONFIG_CHANGED_AT] = self._sweep.reached(trial_number(trial), 0)
        super()._write_outcome(trial, outcome, cause)

    def _train_limit(self, number: int, segment: int) -> int:
        """Return the iteration up to which a trial may train in a segment."""
        assignment = self._sweep.assignment(number)
        if segment < assignment.segment:
            return self._sweep.reached(number, segment)
        return assignment.limit

    def _ends_at(self, trial: Trial, iteration: int) -> bool:
        """Return whether a trial ends at its limit, and note how."""
        assignment = self._sweep.assignment(trial_number(trial))
        if trial_segment(trial) < assignment.segment:
            return False
        outcome = assignment.outcome
        if outcome is None and self._sweep.end_reason is None:
            return False
        if outcome is None:
            position = Position(trial_number(trial), trial_segment(trial), iteration)
            last = self._sweep.results.get(position, {})
            ended = Outcome.COMPLETED if last.get("done") else Outcome.OUT_OF_BUDGET
            outcome = Outcome.of_result(last) or ended  # by itself, before a kill
        self._note_outcome(trial, outcome, iteration, assignment.cause)
        return True

    def _begin_segments(self, trial: Trial) -> None:
        """Put a paused trial in the state of another one if that is decided, and exists."""
        number = trial_number(trial)
        if trial.status != Trial.PAUSED:
            return
        while (segment := trial_segment(trial)) < self._sweep.assignment(number).segment:
            start = self._sweep.start(number, segment + 1)
            saved = self._checkpoint(start)
            if saved is None:
                self._repeat(start)
            if saved is None or saved_iteration(trial) < self._sweep.reached(number, segment):
                return
            self._begin(trial, segment + 1, saved)

    def _begin(self, trial: Trial, segment: int, saved: Any | None) -> None:
        """Put a trial in a saved state, with the config of a segment; None to start over."""
        config = nest(self._sweep.config(trial_number(trial), segment))
        begin_segment(trial, segment, saved, config)

    def _repeat(self, position: Position) -> None:
        """Have a paused trial train up to a position again whose checkpoint was lost by a kill."""
        trial, segment = self._by_number.get(position.trial), position.segment
        if trial is None or trial.status != Trial.PAUSED:
            return
        if (trial_segment(trial), saved_iteration(trial)) < (segment, position.iteration):
            return  # it is on its way
        start = self._sweep.start(position.trial, segment) if segment else None
        first = start.iteration if start else 0
        earlier = (
            self._checkpoint(replace(position, iteration=iteration))
            for iteration in reversed(range(first + 1, position.iteration))
        )
        saved = next(filter(None, earlier), None)
        if saved is None and start is not None and (saved := self._checkpoint(start)) is None:
            self._repeat(start)
        else:
            self._begin(trial, segment, saved)

    def _is_lost(self, trial: Trial) -> bool:
        """Return whether a trial's next state is lost for good; then it ends as failed."""
        number, segment = trial_number(trial), trial_segment(trial)
        if segment == self._sweep.assignment(number).segment:
            return False
        start = self._sweep.start(number, segment + 1)
        donor = self._by_number.get(start.trial)
        if donor is None or not donor.is_finished() or self._checkpoint(start) is not None:
            return False
        cause = f"trial {start.trial}, in whose state it was to continue, has lost its checkpoint"
        self._note_outcome(trial, Outcome.OUT_OF_BUDGET, saved_iteration(trial), cause)
        self._add_failure(trial)
        return True

    def _checkpoint(self, position: Position) -> Any | None:
        trial = self._by_number.get(position.trial)
        if trial is None:
            return None
        config = self._sweep.config(position.trial, position.segment)
        return find_checkpoint(trial, position.iteration, config)

    def _add_end(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Add the last result of a trial that has ended, unless it is known."""
        position = Position(
            trial_number(trial), trial_segment(trial), int(result.get(TRAINING_ITERATION, 0))
        )
        if trial.status == Trial.ERROR:
            self._add_failure(trial)
        elif position.iteration and position not in self._sweep.results:
            self._report(position, {**logical_metrics(result), "done": True})
        elif result.get(STOP_CAUSE) == STOPPED_BY_HAND:
            self._add_failure(trial)  # its last result was known, and others wait for the next

    def _add_saved(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Add the result of a restored trial's checkpoint, before which a kill may have come."""
        iteration = int(result[TRAINING_ITERATION])
        position = Position(trial_number(trial), trial_segment(trial), iteration)
        if position not in self._sweep.results:
            ends = bool(result.get("done")) or iteration >= self.settings.max_t
            self._report(position, {**logical_metrics(result), **({"done": True} if ends else {})})

    def _advance(self) -> None:
        """Add failures that no kill can undo any more, then make all decisions."""
        failing, self._failing = self._failing, []
        for trial in failing:
            if trial.status == Trial.ERROR:  # else it is retried
                if was_lost(trial):
                    self.note(f"trial {trial_number(trial)} failed because its process was lost")
                self._add_failure(trial)
        self._sweep.advance()

    def _add_failure(self, trial: Trial) -> None:
        self._sweep.advance()
        number = trial_number(trial)
        segment = max(trial_segment(trial), self._sweep.assignment(number).segment)
        self._report(Position(number, segment, self._num_known(number, segment) + 1), {})

    def _report(self, position: Position, metrics: Mapping[str, Any]) -> None:
        """Append a new result to the file, then make the decisions that it allows."""
        known = self._sweep.results.get(position)
        if known is None:
            self._append({"position": list(vars(position).values()), "metrics": metrics})
            self._add(position, metrics)
        elif metrics and json.dumps(known) != json.dumps(metrics):
            _log.warning(
                "trial %d is not reproducible: iteration %d gave %s, and when repeated %s",
                position.trial,
                position.iteration,
                known,
                metrics,
            )
            self.note(f"trial {position.trial} gave other results when it was repeated")
        self._sweep.advance()

    def _append(self, line: Mapping[str, Any]) -> None:
        file = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            append_line(file, json.dumps(line).encode(), self._file)
        finally:
            os.close(file)

    def _add(self, position: Position, metrics: Mapping[str, Any]) -> None:
        self._sweep.report(position, metrics)
        if metrics:
            key = position.trial, position.segment
            self._known[key] = max(position.iteration, self._known.get(key, 0))

    def _num_known(self, number: int, segment: int) -> int:
        start = self._sweep.start(number, segment).iteration if segment else 0
        return self._known.get((number, segment), start)


def value_differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return text like ``tensorflow 2.21.0 and 2.20.0`` for the values that differ."""
    return ", ".join(
        f"{name} {one.get(name, 'unknown')} and {other.get(name, 'unknown')}"
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    )
