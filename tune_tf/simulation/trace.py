"""Trace of a simulated sweep."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tune_tf.objective import Objective


class StopReason(enum.Enum):
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


class Event(NamedTuple):
    """Result of a trial.

    Args:
        time_s: Virtual seconds since the start.
        trial: Number of the trial in order of proposal, from 0.
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
    """Trial of a simulated sweep.

    Args:
        number: Number in order of proposal, from 0.
        config: Config; the last one if a scheduler changed it.
        status: Ray Tune's status at the end of the sweep.
    """

    number: int
    config: Mapping[str, Any]
    status: str


@dataclass(frozen=True)
class Trace:
    """Trace of a simulated sweep: results in order of time, trials in order of proposal."""

    objective: Objective
    max_t: int
    events: tuple[Event, ...]
    trials: tuple[VirtualTrial, ...]
    end: StopReason

    @property
    def epochs(self) -> int:
        """Iterations of all trials together."""
        return len(self.events)

    @property
    def virtual_s(self) -> float:
        """Virtual seconds from the start to the last result."""
        return self.events[-1].time_s if self.events else 0.0

    def full_runs(self) -> tuple[Event, ...]:
        """Return the last results of the full runs."""
        return tuple(event for event in self.events if event.iteration >= self.max_t)

    @property
    def best_value(self) -> float | None:
        """Best value of a full run; None if no trial ran in full."""
        values = [event.value for event in self.full_runs()]
        if not values:
            return None
        return max(values) if self.objective.mode == "max" else min(values)

    def best_by_epochs(self) -> tuple[tuple[int, float], ...]:
        """Return ``(epochs, value)`` of each full run that improved on the best value."""
        steps: list[tuple[int, float]] = []
        for event in self.full_runs():
            if not steps or self.objective.better(event.value, steps[-1][1]):
                steps.append((event.epochs, event.value))
        return tuple(steps)

    def epochs_to(self, target: float) -> int | None:
        """Return the epochs until a full run reached a target; None if none did.

        Trials that were stopped early do not count, even if they looked good or had a good config.
        """
        for epochs, value in self.best_by_epochs():
            if not self.objective.better(target, value):
                return epochs
        return None
