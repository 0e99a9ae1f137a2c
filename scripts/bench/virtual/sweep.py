"""Sweep in virtual time: a real searcher and scheduler, learning curves of a problem."""

import random
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from tune_tf.tune_internals.stub_controller import StubController
from virtual.problems import Problem

_JITTER = 0.1


class Event(NamedTuple):
    """Result of a trial, by its number in order of proposal, from 0; iterations count from 1."""

    time_s: float
    trial: int
    iteration: int
    value: float


@dataclass(frozen=True)
class Trace:
    """What happened in a sweep: results in order of time, trials in order of proposal."""

    problem: Problem
    events: tuple[Event, ...]
    trials: tuple[Trial, ...]

    @property
    def virtual_s(self) -> float:
        """Virtual seconds from the start to the last result."""
        return self.events[-1].time_s

    def decisions(self) -> list[tuple[Event, ...] | tuple[str, str]]:
        """Return what two sweeps that decide alike have in common."""
        return [self.events, *((str(trial.config), trial.status) for trial in self.trials)]

    def epochs_to_target(self) -> int | None:
        """Return the epochs until a full run reached the problem's target; None if none did."""
        for epochs, event in enumerate(self.events, 1):
            if event.iteration >= self.problem.max_t and self.problem.is_solved_by(event.value):
                return epochs
        return None


def run_virtually(
    problem: Problem,
    searcher: Searcher,
    scheduler: TrialScheduler,
    *,
    num_workers: int,
    budget_epochs: int | None = None,
    num_samples: int | None = None,
    until_solved: bool = False,
    seed: int = 0,
) -> Trace:
    """Run a sweep; the earliest of the trials that train gets its next result.

    Args:
        problem: Gives results, and seconds per iteration, which vary by up to 10 %.
        searcher: Proposes configs; it cannot be used again, nor can the scheduler.
        scheduler: Decides.
        num_workers: Trials at a time.
        budget_epochs: Iterations of all trials together after which the sweep ends.
        num_samples: Number of trials; this or ``budget_epochs`` is required.
        until_solved: Whether the sweep ends when a full run reaches the problem's target.
        seed: Seed of the seconds, and of the global generators, which Ray's schedulers use.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - Ray uses it
    rng = np.random.default_rng(seed)
    controller = StubController(
        searcher, scheduler, num_slots=num_workers, max_t=problem.max_t, num_samples=num_samples
    )
    events: list[Event] = []
    ends: dict[Trial, float] = {}
    now_s = 0.0
    while len(events) != budget_epochs:
        controller.fill()
        for trial in controller.running:
            if trial not in ends:
                jitter = 1 + rng.uniform(-_JITTER, _JITTER)
                ends[trial] = now_s + problem.seconds(trial.config) * jitter
        ends = {trial: end for trial, end in ends.items() if trial in controller.running}
        if not ends:
            break
        trial = min(ends, key=ends.__getitem__)
        now_s = ends.pop(trial)
        iteration = trial.last_result.get("training_iteration", 0) + 1
        value = problem.value(trial.config, iteration)
        events.append(Event(now_s, int(trial.trial_id), iteration, value))
        controller.report(trial, iteration, {problem.objective.metric: value})
        if until_solved and iteration >= problem.max_t and problem.is_solved_by(value):
            break
    return Trace(problem, tuple(events), tuple(controller.get_trials()))
