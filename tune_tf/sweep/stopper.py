"""Stopper for reasons outside a trial and its scheduler, such as requests of other processes."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune import Stopper
from ray.tune.stopper import NoopStopper
from ray.tune.utils import flatten_dict

from tune_tf.config import SweepConfig
from tune_tf.constraint import is_feasible
from tune_tf.outcome import STOPPED_BY_HAND, Outcome, is_finite
from tune_tf.record import Record

_CHECK_EVERY_S = 0.5

_log = logging.getLogger(__name__)


class SweepStopper(Stopper):
    """Tune stopper that ends single trials, and the whole sweep once it has a reason."""

    def __init__(self, config: SweepConfig) -> None:
        self._config = config
        self.reason: str | None = None
        """Why the sweep ends; None while it continues."""
        self.trial_ends: dict[str, tuple[Outcome, str | None]] = {}
        """How trials have to end, by id."""
        self._closing: set[str] = set()
        self._checks: list[Callable[[], None]] = []

    def __reduce__(self) -> tuple[type[Stopper], tuple[()]]:
        """Pickle as one that stops nothing: Tune writes it into its own state."""
        return NoopStopper, ()

    def end(self, reason: str) -> None:
        """End the sweep; the first reason is kept."""
        self.reason = self.reason or reason

    def end_trial(self, trial_id: str, outcome: Outcome, cause: str) -> None:
        """End a trial with its next result, or at once if it is paused."""
        self.trial_ends[trial_id] = outcome, cause

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether a trial ends with this result."""
        reached = self._reached_target(result)
        if reached:
            self.end_trial(trial_id, Outcome.COMPLETED, reached)
            if not self._config.reproducible:  # else in the order of results
                self.end(f"a trial's {reached}")
        elif self.trial_ends.get(trial_id, (None, ""))[0] is Outcome.COMPLETED:
            del self.trial_ends[trial_id]  # it is repeated: its process was lost after the target
        return trial_id in self.trial_ends

    def _reached_target(self, result: Mapping[str, Any]) -> str | None:
        """Return a text if a result is feasible and at least as good as the target."""
        if self._config.budget.target is None:
            return None
        target, objective = self._config.budget.target, self._config.leading_objective
        flat = flatten_dict(result)
        value: Any = flat.get(objective.metric)
        if not is_finite(value) or not is_feasible(self._config.constraints, flat):
            return None
        if objective.better(target, float(value)):
            return None
        return f"{objective.metric} {value:.6g} reached its target of {target:.6g}"

    def add_check(self, check: Callable[[], None]) -> None:
        """Call a function whenever Tune asks whether to stop, also while it waits."""
        self._checks.append(check)

    def mark_closing(self, trial_id: str) -> None:
        """Note that a trial has reported its last result; its checkpoint may still be written."""
        self._closing.add(trial_id)

    def mark_closed(self, trial_id: str) -> None:
        """Note that Tune has ended or restarted a trial."""
        self._closing.discard(trial_id)

    def stop_all(self) -> bool:
        """Return whether to end all trials, after those that are already closing."""
        for check in self._checks:
            check()
        return self.reason is not None and not self._closing


class RequestReader:
    """Reader of control requests that stops the sweep or single trials."""

    def __init__(
        self, record: Record, stopper: SweepStopper, interrupt: Callable[[], None]
    ) -> None:
        self._record = record
        self._stopper = stopper
        self._interrupt = interrupt
        self._checked_s = time.monotonic()
        stopper.add_check(self._check)

    def _check(self) -> None:
        now = time.monotonic()
        if now - self._checked_s < _CHECK_EVERY_S:
            return
        self._checked_s = now
        for request in self._record.take_requests():
            for trial_id in request.get("trial_ids", ()):
                self._stopper.end_trial(trial_id, Outcome.PRUNED, STOPPED_BY_HAND)
            if request.get("stop") == "end":
                self._stopper.end("it was ended by hand")
            elif request.get("stop") == "interrupt":
                self._interrupt()


def interrupt_sweep() -> None:
    """Interrupt the sweep that this process runs, as Ctrl-C does."""
    if threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGINT)
    else:
        _log.warning(
            "the sweep runs in a separate thread, where it can only be ended for good: tune-tf "
            "stop --end"
        )
