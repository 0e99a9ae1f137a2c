"""Metrics of a trial's subtasks and their summary."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

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
            keep = min(iteration, self._ended_at[subtask] or iteration)
            for epoch in [epoch for epoch in epochs if epoch < keep]:
                del epochs[epoch]

    def up_to(self, epochs: Mapping[int, int]) -> "SubtaskResults":
        """Return a copy that ends at an epoch of each subtask; a missing subtask has no epochs."""
        kept = SubtaskResults(len(self._by_epoch))
        for subtask, last in epochs.items():
            for epoch, metrics in self._by_epoch[subtask].items():
                if epoch <= last:
                    ended = self._ended_at[subtask] == epoch
                    kept.add(subtask, epoch, metrics, ended=ended)
        return kept

    def plain(self) -> list[dict[str, Any]]:
        """Return a JSON-serializable form."""
        return [
            {"epochs": {str(epoch): each for epoch, each in epochs.items()}, "ended_at": ended_at}
            for epochs, ended_at in zip(self._by_epoch, self._ended_at, strict=True)
        ]

    @classmethod
    def of_plain(cls, plain: Sequence[Mapping[str, Any]]) -> "SubtaskResults":
        """Restore results from :meth:`plain`."""
        made = cls(len(plain))
        for subtask, each in enumerate(plain):
            for epoch, metrics in each["epochs"].items():
                ended = each["ended_at"] == int(epoch)
                made.add(subtask, int(epoch), metrics, ended=ended)
        return made


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
    spreads: SubtaskMetrics = {}
    for name in metrics[0]:
        values = [float(each[name]) for each in metrics if name in each]
        if len(values) < len(metrics):
            continue  # a mean needs all subtasks
        if all(math.isfinite(value) for value in values):
            means[name] = statistics.fmean(values)
            spreads[f"{name}_std"] = statistics.stdev(values)
        else:
            means[name] = sum(values) / len(values)  # not finite either
    own = {
        f"{label}_{number}/{name}": value
        for number, each in enumerate(metrics)
        for name, value in each.items()
    }
    return spreads | means | own
