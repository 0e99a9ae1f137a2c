"""Simulation of a whole sweep in virtual time, and its trace."""

import enum
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import ResourceChangingScheduler, TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.objective import Objective
from tune_tf.result_keys import TRAINING_ITERATION
from tune_tf.simulation.problem import Problem
from tune_tf.tune_internals.virtual_controller import VirtualController, VirtualSearch

_JITTER: Final = 0.1


class SweepEndReason(enum.Enum):
    """Reason why a simulated sweep ended."""

    FOUND = "found"
    """A full run reached the requested value."""

    OUT_OF_BUDGET = "out_of_budget"
    """The budget of epochs was used up."""

    FINISHED = "finished"
    """All requested trials have ended."""

    STALLED = "stalled"
    """No trial can run: the scheduler holds paused trials, and these keep the searcher at its limit
    of concurrent trials. Ray Tune would wait forever."""


class VirtualResult(NamedTuple):
    """Result of a trial, by its number in order of proposal, from 0.

    Args:
        time_s: Virtual seconds since the start.
        iteration: Iteration of the trial, from 1.
        epochs: Iterations of all trials up to this one, inclusive.
    """

    time_s: float
    trial: int
    iteration: int
    value: float
    epochs: int


@dataclass(frozen=True)
class VirtualTrial:
    """Trial of a simulated sweep, with its last config and Ray Tune's status at the end."""

    number: int
    config: Mapping[str, Any]
    status: str


@dataclass(frozen=True)
class Trace:
    """Trace of a simulated sweep: results in order of time, trials in order of proposal."""

    objective: Objective
    max_t: int
    events: tuple[VirtualResult, ...]
    trials: tuple[VirtualTrial, ...]
    end: SweepEndReason

    @property
    def epochs(self) -> int:
        """Iterations of all trials together."""
        return len(self.events)

    @property
    def virtual_s(self) -> float:
        """Virtual seconds from the start to the last result."""
        return self.events[-1].time_s if self.events else 0.0

    def full_runs(self) -> tuple[VirtualResult, ...]:
        """Return the last results of the full runs."""
        return tuple(event for event in self.events if event.iteration >= self.max_t)

    @property
    def best_value(self) -> float | None:
        """Best value of a full run; None if no trial ran in full."""
        values = [event.value for event in self.full_runs()]
        if not values:
            return None
        return max(values) if self.objective.mode == "max" else min(values)

    def epochs_to(self, target: float) -> int | None:
        """Return the epochs until a full run reached a target; None if none did.

        Trials that were stopped early do not count, even if they looked good or had a good config.
        """
        for event in self.full_runs():
            if not self.objective.better(target, event.value):
                return event.epochs
        return None


class _ProblemResults:
    """Results of a problem's learning curves; the generator varies durations by up to 10 %."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._rng = rng

    def seconds(self, trial: Trial) -> float:
        """Return the virtual seconds of the trial's next iteration."""
        return self._problem.seconds(trial.config) * (1 + self._rng.uniform(-_JITTER, _JITTER))

    def result(self, trial: Trial, iteration: int) -> Mapping[str, Any]:
        """Return the metric of an iteration."""
        return {self._problem.objective.metric: self._problem.value(trial.config, iteration)}


def simulate(
    problem: Problem,
    searcher: Searcher,
    scheduler: TrialScheduler,
    *,
    num_workers: int = 1,
    budget_epochs: int | None = None,
    num_samples: int | None = None,
    max_concurrent_trials: int | None = None,
    until: float | None = None,
    seed: int = 0,
) -> Trace:
    """Simulate a sweep: real decisions, metrics from a problem, virtual time, no Ray cluster.

    Like ``tune.run``, it modifies the searcher and the scheduler, which cannot be reused.

    Args:
        problem: Problem to solve.
        searcher: Ray Tune searcher that has its space, metric and mode.
        scheduler: Ray Tune scheduler that has its metric and mode, and does not change resources.
        num_workers: Number of concurrent trials, at least 1.
        budget_epochs: Iterations of all trials together after which the sweep ends.
        num_samples: Number of trials; this or ``budget_epochs`` is required.
        max_concurrent_trials: Unfinished trials at most, including paused ones, as in ``tune.run``;
            ``num_workers`` if None.
        until: Value that ends the sweep as soon as a full run reaches it.
        seed: Seed of the durations, which vary by up to 10 %, and of the global generators of
            Python and NumPy, which Ray's schedulers use; both are restored afterwards.

    Raises:
        InvalidSettingsError: A number is out of range, or no end is given; lists all errors.
    """
    concurrent = num_workers if max_concurrent_trials is None else max_concurrent_trials
    numbers = {
        "num_workers": num_workers,
        "budget_epochs": budget_epochs,
        "num_samples": num_samples,
        "max_concurrent_trials": max_concurrent_trials,
    }
    errors = [
        ErrorDetail(name, f"must be an integer of at least 1, not {number!r}")
        for name, number in numbers.items()
        if number is not None and (isinstance(number, bool) or number < 1)
    ]
    if budget_epochs is None and num_samples is None:
        errors.append(ErrorDetail("", "a sweep needs an end: give budget_epochs or num_samples"))
    if isinstance(scheduler, ResourceChangingScheduler):
        text = "changes resources, which simulated trials do not have: simulate its base scheduler"
        errors.append(ErrorDetail("scheduler", text))
    if errors:
        raise InvalidSettingsError(errors)
    events: list[VirtualResult] = []
    is_found = False

    def on_event(time_s: float, trial: Trial, result: Mapping[str, Any]) -> bool:
        nonlocal is_found
        iteration, value = result[TRAINING_ITERATION], result[problem.objective.metric]
        events.append(VirtualResult(time_s, int(trial.trial_id), iteration, value, len(events) + 1))
        is_good = until is not None and not problem.objective.better(until, value)
        is_found = is_good and iteration >= problem.max_t
        return not is_found and len(events) != budget_epochs

    limited = ConcurrencyLimiter(searcher, concurrent)
    with tempfile.TemporaryDirectory() as folder, _seeded(seed):
        search = VirtualSearch(limited, num_samples, problem.max_t, folder)
        results = _ProblemResults(problem, np.random.default_rng(seed))
        controller = VirtualController(
            results, search, scheduler, num_workers=num_workers, on_event=on_event
        )
        have_ended = controller.run()
    if is_found:
        end = SweepEndReason.FOUND
    elif len(events) == budget_epochs:
        end = SweepEndReason.OUT_OF_BUDGET
    else:
        is_finished = have_ended and search.is_finished()
        end = SweepEndReason.FINISHED if is_finished else SweepEndReason.STALLED
    trials = tuple(
        VirtualTrial(number, trial.config, trial.status)
        for number, trial in enumerate(controller.get_trials())
    )
    return Trace(problem.objective, problem.max_t, tuple(events), trials, end)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, which Ray's schedulers use, and restore them afterwards."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - Ray uses it
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
