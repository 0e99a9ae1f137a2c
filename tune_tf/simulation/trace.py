"""Trace of a simulated sweep."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tune_tf.objective import Objective


class End(enum.Enum):
    """Why a simulated sweep ended."""

    FOUND = "found"
    """A trial ran to its limit with a value that was good enough."""

    OUT_OF_BUDGET = "out_of_budget"
    """The epochs were used up."""

    FINISHED = "finished"
    """All trials that were asked for have ended."""

    STALLED = "stalled"
    """Nothing runs and nothing will: the scheduler holds paused trials, and the searcher may not
    propose more. Ray Tune would wait for ever."""


class Event(NamedTuple):
    """A result of a trial.

    Args:
        time_s: Virtual seconds since the start.
        trial: Number of the trial, in the order of proposal, from 0.
        iteration: The trial's iteration, from 1.
        value: The metric.
        epochs: Iterations that all trials have run by then, this one included.
    """

    time_s: float
    trial: int
    iteration: int
    value: float
    epochs: int


@dataclass(frozen=True)
class VirtualTrial:
    """A trial of a simulated sweep.

    Args:
        number: In the order of proposal, from 0.
        config: Its config, the last one if a scheduler changed it.
        status: Ray Tune's word for its state when the sweep ended.
    """

    number: int
    config: Mapping[str, Any]
    status: str


@dataclass(frozen=True)
class Trace:
    """A simulated sweep.

    Args:
        objective: The metric of the values.
        max_t: Iterations of a trial that runs to its limit.
        events: All results, in the order of time.
        trials: All trials, in the order of proposal.
        end: Why the sweep ended.
    """

    objective: Objective
    max_t: int
    events: tuple[Event, ...]
    trials: tuple[VirtualTrial, ...]
    end: End

    @property
    def epochs(self) -> int:
        """Iterations that all trials have run together."""
        return len(self.events)

    @property
    def virtual_s(self) -> float:
        """Virtual seconds from the start to the last result."""
        return self.events[-1].time_s if self.events else 0.0

    def full_runs(self) -> tuple[Event, ...]:
        """Return the last results of the trials that ran to their limit."""
        return tuple(event for event in self.events if event.iteration >= self.max_t)

    @property
    def best_value(self) -> float | None:
        """The best value of a trial that ran to its limit; None if none did."""
        values = [event.value for event in self.full_runs()]
        if not values:
            return None
        return max(values) if self.objective.mode == "max" else min(values)

    def best_by_epochs(self) -> tuple[tuple[int, float], ...]:
        """Return ``(epochs, value)`` of each full run that was the best so far."""
        steps: list[tuple[int, float]] = []
        for event in self.full_runs():
            if not steps or self.objective.better(event.value, steps[-1][1]):
                steps.append((event.epochs, event.value))
        return tuple(steps)

    def epochs_to(self, target: float) -> int | None:
        """Return the epochs until a trial had run to its limit with a value at least that good.

        That is what a user gets: a config that was proposed and stopped again, or that looked good
        on the way, is not found. None if it did not happen.
        """
        for epochs, value in self.best_by_epochs():
            if not self.objective.better(target, value):
                return epochs
        return None
