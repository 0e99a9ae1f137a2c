"""What happens in a sweep, seen by Ray Tune's callbacks. Imports Tune: import it on the clock."""

from typing import Any

from outcome import Clock
from ray import tune


class Watch(tune.Callback):
    """Notes when things happen, in which processes, and the best accuracy of any epoch.

    Args:
        clock: Takes the marks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.pids: set[int] = set()
        self.best_val_accuracy = 0.0

    def setup(self, *args: Any, **info: Any) -> None:
        """Mark that ``tune.run`` is set up."""
        self._clock.mark("tune.run set up")

    def on_trial_start(self, *args: Any, **info: Any) -> None:
        """Mark that the first actor is there."""
        self._clock.mark("first trial started")

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Take in a result."""
        self._clock.mark("first result")
        self._clock.mark("last result", last=True)
        self.pids.add(result["pid"])
        self.best_val_accuracy = max(self.best_val_accuracy, result["val_accuracy"])

    def on_experiment_end(self, *args: Any, **info: Any) -> None:
        """Mark that no trial is left."""
        self._clock.mark("trials ended")
