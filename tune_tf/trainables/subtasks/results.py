"""What the subtasks of a trial reported, and what follows for the trial."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Metrics = dict[str, float]


class SubtaskResults:
    """Metrics by subtask and epoch.

    A subtask that has ended by itself counts with its last metrics from then on.

    Args:
        num_subtasks: Subtasks.
    """

    def __init__(self, num_subtasks: int) -> None:
        self._by_epoch: list[dict[int, Metrics]] = [{} for _ in range(num_subtasks)]
        self._ended_at: list[int | None] = [None] * num_subtasks

    def add(self, subtask: int, epoch: int, metrics: Mapping[str, float], *, ended: bool) -> None:
        """Keep the metrics of a subtask's epoch, from 1; ``ended`` if it was its last."""
        self._by_epoch[subtask][epoch] = dict(metrics)
        if ended:
            self._ended_at[subtask] = epoch

    def last_epoch(self, subtask: int) -> int:
        """Return how many epochs of a subtask are known; 0 for none."""
        return max(self._by_epoch[subtask], default=0)

    def has_ended(self, subtask: int, by: int) -> bool:
        """Return whether a subtask has ended with an epoch or before it."""
        ended_at = self._ended_at[subtask]
        return ended_at is not None and ended_at <= by

    def is_complete(self, iteration: int) -> bool:
        """Return whether all subtasks have done an iteration, or ended before."""
        return all(
            iteration in epochs or self.has_ended(subtask, iteration)
            for subtask, epochs in enumerate(self._by_epoch)
        )

    def of(self, iteration: int) -> list[Metrics]:
        """Return the metrics of all subtasks, by number, as of an iteration."""
        return [
            epochs[min(iteration, self._ended_at[subtask] or iteration)]
            for subtask, epochs in enumerate(self._by_epoch)
        ]

    def forget(self, iteration: int) -> None:
        """Forget what is older than an iteration and not needed any more."""
        for subtask, epochs in enumerate(self._by_epoch):
            keep = min(iteration, self._ended_at[subtask] or iteration)
            for epoch in [epoch for epoch in epochs if epoch < keep]:
                del epochs[epoch]

    def up_to(self, epochs: Mapping[int, int]) -> "SubtaskResults":
        """Return these results without what each subtask did after an epoch.

        Args:
            epochs: By subtask; one that is not in it has done nothing.
        """
        kept = SubtaskResults(len(self._by_epoch))
        for subtask, last in epochs.items():
            for epoch, metrics in self._by_epoch[subtask].items():
                if epoch <= last:
                    ended = self._ended_at[subtask] == epoch
                    kept.add(subtask, epoch, metrics, ended=ended)
        return kept

    def plain(self) -> list[dict[str, Any]]:
        """Return everything as JSON can hold it."""
        return [
            {"epochs": {str(epoch): each for epoch, each in epochs.items()}, "ended_at": ended_at}
            for epochs, ended_at in zip(self._by_epoch, self._ended_at, strict=True)
        ]

    @classmethod
    def of_plain(cls, plain: Sequence[Mapping[str, Any]]) -> "SubtaskResults":
        """Return what :meth:`plain` made plain."""
        made = cls(len(plain))
        for subtask, each in enumerate(plain):
            for epoch, metrics in each["epochs"].items():
                ended = each["ended_at"] == int(epoch)
                made.add(subtask, int(epoch), metrics, ended=ended)
        return made


def has_diverged(metrics: Mapping[str, float]) -> bool:
    """Return whether training produced a loss that is no number."""
    return not math.isfinite(metrics.get("loss", 0.0))


def best_subtask(metrics: Sequence[Mapping[str, float]]) -> int:
    """Return the subtask with the lowest ``val_loss``, or ``loss`` where none is validated."""

    def loss(subtask: int) -> float:
        value = metrics[subtask].get("val_loss", metrics[subtask].get("loss", math.inf))
        return value if math.isfinite(value) else math.inf

    return min(range(len(metrics)), key=loss)


def summary(metrics: Sequence[Mapping[str, float]], label: str) -> Metrics:
    """Return a trial's metrics: mean and spread over its subtasks, and those of each.

    Args:
        metrics: By subtask.
        label: What a subtask is called.

    Returns:
        The mean under the metric's own name; behind ``_std`` the sample standard deviation (with
        the number of subtasks less one as divisor); and ``fold_0/val_loss`` and so on.
    """
    means: Metrics = {}
    spreads: Metrics = {}
    for name in metrics[0]:
        values = [float(each[name]) for each in metrics if name in each]
        if len(values) < len(metrics):
            continue  # not of all: no mean of the trial
        if all(math.isfinite(value) for value in values):
            means[name] = statistics.fmean(values)
            spreads[f"{name}_std"] = statistics.stdev(values)
        else:
            means[name] = sum(values) / len(values)  # which is not finite either
    own = {
        f"{label}_{number}/{name}": value
        for number, each in enumerate(metrics)
        for name, value in each.items()
    }
    return spreads | means | own
