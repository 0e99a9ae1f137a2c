"""Progress of a trial's subtasks: their metrics, latest states and devices."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from tune_tf.trainables.multi_process.processes import ProcessHandle
from tune_tf.trainables.subtasks.queue import SubtaskEpoch
from tune_tf.trainables.subtasks.worker import SubtaskSnapshot
from tune_tf.trainables.trial_process import EpochReport

SubtaskMetrics = dict[str, float]


class SubtaskResults:
    """Metrics by subtask and epoch.

    A subtask that has ended keeps its last metrics in all later iterations.
    """

    def __init__(self, num_subtasks: int) -> None:
        self._by_epoch: list[dict[int, SubtaskMetrics]] = [{} for _ in range(num_subtasks)]
        self._ended_at: list[int | None] = [None] * num_subtasks

    def add(self, subtask: int, epoch: int, metrics: Mapping[str, float], *, ended: bool) -> None:
        """Add the metrics of a subtask's epoch, from 1; ``ended`` marks its last epoch."""
        self._by_epoch[subtask][epoch] = dict(metrics)
        if ended:
            self._ended_at[subtask] = epoch

    def last_epoch(self, subtask: int) -> int:
        """Return the last recorded epoch of a subtask; 0 if there is none."""
        return max(self._by_epoch[subtask], default=0)

    @property
    def has_any(self) -> bool:
        """Whether any subtask has completed an epoch."""
        return any(self._by_epoch)

    def has_ended(self, subtask: int, by: int) -> bool:
        """Return whether a subtask ended at or before an epoch."""
        ended_at = self._ended_at[subtask]
        return ended_at is not None and ended_at <= by

    def is_complete(self, iteration: int) -> bool:
        """Return whether each subtask has completed an iteration or ended before it."""
        return all(
            iteration in epochs or self.has_ended(subtask, iteration)
            for subtask, epochs in enumerate(self._by_epoch)
        )

    def of(self, iteration: int) -> list[SubtaskMetrics]:
        """Return the metrics of each subtask at an iteration."""
        return [
            epochs[min(iteration, self._ended_at[subtask] or iteration)]
            for subtask, epochs in enumerate(self._by_epoch)
        ]

    def forget(self, iteration: int) -> None:
        """Discard metrics that are older than an iteration and no longer needed."""
        for subtask, epochs in enumerate(self._by_epoch):
            oldest = min(iteration, self._ended_at[subtask] or iteration)
            for epoch in [epoch for epoch in epochs if epoch < oldest]:
                del epochs[epoch]

    def up_to(self, epochs: Mapping[int, int]) -> "SubtaskResults":
        """Return a copy that ends at an epoch of each subtask; a missing subtask has no epochs."""
        results = SubtaskResults(len(self._by_epoch))
        for subtask, last in epochs.items():
            for epoch, metrics in self._by_epoch[subtask].items():
                if epoch <= last:
                    ended = self._ended_at[subtask] == epoch
                    results.add(subtask, epoch, metrics, ended=ended)
        return results

    def plain(self) -> list[dict[str, Any]]:
        """Return a JSON-serializable form."""
        return [
            {"epochs": {str(epoch): each for epoch, each in epochs.items()}, "ended_at": ended_at}
            for epochs, ended_at in zip(self._by_epoch, self._ended_at, strict=True)
        ]

    @classmethod
    def of_plain(cls, plain: Sequence[Mapping[str, Any]]) -> "SubtaskResults":
        """Restore results from :meth:`plain`."""
        results = cls(len(plain))
        for subtask, each in enumerate(plain):
            for epoch, metrics in each["epochs"].items():
                ended = each["ended_at"] == int(epoch)
                results.add(subtask, int(epoch), metrics, ended=ended)
        return results


def has_diverged(metrics: Mapping[str, float]) -> bool:
    """Return whether the training loss is NaN or infinite."""
    return not math.isfinite(metrics.get("loss", 0.0))


def best_subtask(metrics: Sequence[Mapping[str, float]]) -> int:
    """Return the subtask with the lowest ``val_loss``, or lowest ``loss`` without validation."""

    def loss(subtask: int) -> float:
        value = metrics[subtask].get("val_loss", metrics[subtask].get("loss", math.inf))
        return value if math.isfinite(value) else math.inf

    return min(range(len(metrics)), key=loss)


def summary(metrics: Sequence[Mapping[str, float]], label: str) -> SubtaskMetrics:
    """Return a trial's metrics: mean and standard deviation over subtasks, and their values.

    ``label`` is the name of a subtask. The mean has the metric's name, the sample standard
    deviation (divisor n - 1) the suffix ``_std``, and each subtask's values a prefix such as
    ``fold_0/``.
    """
    means: SubtaskMetrics = {}
    deviations: SubtaskMetrics = {}
    for name in metrics[0]:
        values = [float(each[name]) for each in metrics if name in each]
        if len(values) < len(metrics):
            continue  # a mean needs all subtasks
        if all(math.isfinite(value) for value in values):
            means[name] = statistics.fmean(values)
            deviations[f"{name}_std"] = statistics.stdev(values)
        else:
            means[name] = sum(values) / len(values)  # not finite either
    values_by_subtask = {
        f"{label}_{number}/{name}": value
        for number, each in enumerate(metrics)
        for name, value in each.items()
    }
    return deviations | means | values_by_subtask


@dataclass(eq=False)
class SubtaskDevice:
    """Process of a device, which is watched once it has started, with the epochs sent to it.

    It ``is_receiving`` while it waits for the state of a subtask that it takes over.
    """

    process: ProcessHandle
    sent: list[SubtaskEpoch] = field(default_factory=list)
    is_receiving: bool = False
    report: EpochReport | None = None


class SubtaskStates:
    """Ray references to the latest state of each subtask, and to the confirmed one before it."""

    def __init__(self) -> None:
        self._states: defaultdict[int, list[tuple[int, Any]]] = defaultdict(list)

    def keep(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Store a confirmed state, a Ray reference to a :class:`SubtaskSnapshot`."""
        self._states[subtask] = [(epoch, snapshot)]

    def expect(self, subtask: int, epoch: int, snapshot: Any) -> None:
        """Store a requested state; the previous one is kept until this one is confirmed."""
        self._states[subtask].append((epoch, snapshot))

    def confirm(self, subtask: int) -> None:
        """Confirm the latest state: a process has begun from it."""
        del self._states[subtask][:-1]

    def epoch(self, subtask: int) -> int:
        """Return the completed epochs of the latest state; 0 if there is none."""
        return self._states[subtask][-1][0] if self._states[subtask] else 0

    def last(self, subtask: int) -> Any:
        """Return the reference to the latest state; None if there is none."""
        return self._states[subtask][-1][1] if self._states[subtask] else None

    def all_of(self, subtask: int) -> list[Any]:
        """Return the references to the states of a subtask, latest first."""
        return [snapshot for _, snapshot in reversed(self._states[subtask])]

    def lasts(self) -> dict[int, Any]:
        """Return the reference to the latest state of each subtask that has one."""
        return {subtask: states[-1][1] for subtask, states in self._states.items() if states}

    def discard_lost(self, subtask: int, timeout_s: float = 0.0) -> bool:
        """Discard the latest state if it was never created, and return whether it was not."""
        state = self.last(subtask)
        if state is None or not ray.wait([state], timeout=timeout_s)[0]:
            return False
        is_lost = fetch_snapshot(state) is None
        if is_lost:
            del self._states[subtask][-1]
        return is_lost


def fetch_snapshot(state: Any) -> SubtaskSnapshot | None:
    """Wait for a state and return it; None if it was lost."""
    try:
        return ray.get(state)
    except RayError:
        return None
