"""Callback that observes a sweep. It imports Tune, so import it while the clock runs."""

from typing import Any

from outcome import Clock
from ray import tune


class SweepWatcher(tune.Callback):
    """Callback that records event times, process ids and the best accuracy of any epoch.

    Args:
        clock: Takes the marks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.pids: set[int] = set()
        self.best_val_accuracy = 0.0

    def setup(self, *args: Any, **info: Any) -> None:
        """Mark the end of the setup of ``tune.run``."""
        self._clock.mark("tune.run set up")

    def on_trial_start(self, *args: Any, **info: Any) -> None:
        """Mark the start of the first actor."""
        self._clock.mark("first trial started")

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Record a result."""
        self._clock.mark("first result")
        self._clock.mark("last result", last=True)
        self.pids.add(result["pid"])
        self.best_val_accuracy = max(self.best_val_accuracy, result["val_accuracy"])

    def on_experiment_end(self, *args: Any, **info: Any) -> None:
        """Mark the end of the last trial."""
        self._clock.mark("trials ended")
