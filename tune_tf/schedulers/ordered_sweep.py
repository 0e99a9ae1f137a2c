"""Sweep whose results are reported in the order in which they were asked for.

A scheduler and a searcher decide on stub trials. Each trial that they choose joins a queue, and is
to train to its next decision; the results of the first in the queue are reported as soon as they
are there, however early those of later ones came, and what is decided then joins at the end. So the
decisions follow from the settings and the results alone, whatever the number of workers, their
load, failures and restarts.
"""

import hashlib
import json
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from tune_tf.outcome import MLFLOW_RUN_ID, STOP_CAUSE, STOP_REASON, Outcome, is_finite
from tune_tf.result_keys import BOOKKEEPING, TRAINING_ITERATION, is_machine_metric
from tune_tf.schedulers.gaussian_process import one_thread
from tune_tf.schedulers.outcome_mixin import OutcomeMixin
from tune_tf.space import flatten
from tune_tf.tune_internals.stub_controller import StubController

_LONGEST_STEP: Final = 4
"""Most epochs that a trial trains in a turn, as a multiple of the mean of the queue."""


class OrderedSweep:
    """Searcher and scheduler that decide in order, as far as results are known.

    Args:
        searcher: Proposes configs; its study must be empty.
        scheduler: Decides; must be new.
        num_slots: Trials in the queue.
        num_samples: Number of trials.
        seed: Seed of Python's and NumPy's global generators, which Ray's schedulers use.
        max_epochs: Epochs of all trials after which ``end_reason`` ends the sweep; None for none.
        end_reason: Called with a trial, its result and all trials, in the order of reports; returns
            why the sweep ends, or None. Trials that are in the queue then train to the end of their
            turns.
        paths: Paths of the parameters, whose values may be mappings.

    Attributes:
        end_reason: Why results have ended the sweep; None if they have not.
    """

    def __init__(
        self,
        searcher: Searcher,
        scheduler: OutcomeMixin,
        *,
        num_slots: int,
        num_samples: int,
        seed: int = 0,
        max_epochs: int | None = None,
        end_reason: Callable[[Trial, Mapping[str, Any], Sequence[Trial]], str | None] = lambda *_: (
            None
        ),
        paths: Collection[str] = (),
    ) -> None:
        self.scheduler = scheduler
        self._paths = frozenset(paths)
        self.end_reason: str | None = None
        self._metric = scheduler.objective.metric
        self._num_slots, self._max_epochs = num_slots, max_epochs
        self._end_reason = end_reason
        self._results: dict[int, dict[int, Mapping[str, Any]]] = defaultdict(dict)
        self._ends: dict[int, int] = {}  # last iterations of trials that end by themselves
        self._failures: dict[int, int] = {}  # last iterations of others that do not go on
        self._limits: dict[int, int] = {}
        self._queue: deque[Trial] = deque()
        self._num_reported = 0
        self._controller = StubController(
            searcher,
            scheduler,
            num_slots=num_slots,
            max_t=scheduler.settings.epochs,
            num_samples=num_samples,
        )
        generator = random.Random(seed)
        self._states = generator.getstate(), np.random.RandomState(seed % 2**32).get_state()
        with self._own_generators():
            self._fill_queue()

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials proposed so far, as the scheduler knows them."""
        return self._controller.get_trials()

    @property
    def is_over(self) -> bool:
        """Whether no trial trains on."""
        return not self._queue

    @property
    def has_all_trials(self) -> bool:
        """Whether no further trial will be proposed."""
        has_ended = self.is_over or self.end_reason is not None
        return has_ended or self._controller.has_all_trials

    def config(self, number: int) -> dict[str, Any]:
        """Return the flat config of a trial."""
        return self.flat(self.trials[number].config)

    def flat(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config by the paths of its parameters."""
        return flatten(config, self._paths)

    def limit(self, number: int) -> int:
        """Return the iteration up to which a trial is to train."""
        return self._limits.get(number, 0)

    def outcome(self, number: int) -> tuple[Outcome | None, str | None]:
        """Return how a trial has ended by decision, and the cause if there is more to say."""
        trial = self.trials[number]
        if trial.status == Trial.ERROR:
            return Outcome.ERROR, None
        if not trial.is_finished():
            return None, None
        return Outcome.of_result(trial.last_result), trial.last_result.get(STOP_CAUSE)

    def turn(self, number: int) -> int:
        """Return how many trials in the queue are before a trial; 0 for one that is not there."""
        trial = self.trials[number]
        return self._queue.index(trial) if trial in self._queue else 0

    def result(self, number: int, iteration: int) -> Mapping[str, Any] | None:
        """Return the metrics of an iteration; None if they are not known."""
        return self._results[number].get(iteration)

    @property
    def digest(self) -> str:
        """Digest of all configs, reported results and outcomes, 16 hexadecimal digits."""
        parts = [
            [self.config(number), self._results[number], reached, str(self.outcome(number)[0])]
            for number, reached in enumerate(map(_reached, self.trials))
        ]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def num_results(self) -> int:
        """Number of results that scheduler and searcher know."""
        return self._num_reported

    def report(
        self, number: int, iteration: int, metrics: Mapping[str, Any], *, done: bool = False
    ) -> None:
        """Add a result, which is ``done`` if the trial ends by itself; a known one stays."""
        self._results[number].setdefault(iteration, metrics)
        if done:
            self._ends.setdefault(number, iteration)

    def report_failure(self, number: int) -> None:
        """Note that a trial has no further results, though it is not done."""
        self._failures.setdefault(number, max(self._results[number], default=0))

    def advance(self) -> None:
        """Make all decisions that the known results allow."""
        while self._queue and self._has_arrived(self._queue[0]):
            with self._own_generators():
                self._report_trial(self._queue.popleft())
                if self.end_reason is None:
                    self._fill_queue()

    def _has_arrived(self, trial: Trial) -> bool:
        number = _number(trial)
        has_ended = number in self._ends or number in self._failures
        return has_ended or self._limits[number] in self._results[number]

    def _report_trial(self, trial: Trial) -> None:
        """Report what a trial has done in its turn, until the scheduler takes it out."""
        number, running = _number(trial), self._controller.running
        limit = self._limits[number]
        for iteration, metrics in sorted(self._results[number].items()):
            if trial in running and _reached(trial) < iteration <= limit:
                done = self._ends.get(number) == iteration and is_finite(metrics[self._metric])
                self._controller.report(trial, iteration, {**metrics, "done": done})
                self._num_reported += 1
                reason = self._end_reason(trial, trial.last_result, self.trials)
                self.end_reason = self.end_reason or reason
        if trial in running and self._failures.get(number, limit) < limit:
            self._controller.report_failure(trial)

    def _fill_queue(self) -> None:
        """Let the scheduler choose trials for free places, and decide how far they train.

        Some may not come to their next decision: others would wait for them too long.
        """
        self._controller.fill()
        for trial in self._controller.running:
            if trial in self._queue:
                continue
            reached = _reached(trial)
            step = self.scheduler.next_decision(reached + 1) - reached
            queued = sum(self.limit(_number(each)) - _reached(each) for each in self._queue)
            if self._queue:
                step = min(step, max(_LONGEST_STEP * queued // len(self._queue), 1))
            if self._max_epochs is not None:
                left = self._max_epochs - self._num_reported - queued
                step = min(step, max(left // self._num_slots, 1))
            number = _number(trial)
            self._limits[number] = max(reached + step, self.limit(number))
            self._queue.append(trial)

    @contextmanager
    def _own_generators(self) -> Iterator[None]:
        """Let the global generators of Python and NumPy continue where this sweep left them."""
        before = random.getstate(), np.random.get_state()  # noqa: NPY002 - Ray uses it
        random.setstate(self._states[0])
        np.random.set_state(self._states[1])  # noqa: NPY002
        try:
            with one_thread():
                yield
        finally:
            self._states = random.getstate(), np.random.get_state()  # noqa: NPY002
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002


def _number(trial: Trial) -> int:
    return int(trial.trial_id)


def _reached(trial: Trial) -> int:
    return int(trial.last_result.get(TRAINING_ITERATION, 0))


def lasting_metrics(result: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return what a trial reported, without what differs from run to run, as JSON gives it back.

    Why it ended is kept if ``metric`` does not say so; a ``metric`` that is no number is NaN.
    """
    values = {
        name: value.item() if hasattr(value, "item") else value
        for name, value in flatten(result).items()
        if name not in {*BOOKKEEPING, MLFLOW_RUN_ID}
        and not name.startswith("config/")
        and not is_machine_metric(name)
    }
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    reason = values.get(STOP_REASON, Outcome.COMPLETED.value)
    if is_finite(numbers.get(metric)) and reason != Outcome.COMPLETED.value:
        numbers[STOP_REASON] = reason
    return {metric: math.nan, **numbers}
