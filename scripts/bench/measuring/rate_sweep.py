"""Sweep over learning rates on two slots, with reused actors."""

import statistics
import tempfile
from typing import Any

from ray import tune

NUM_CPUS = 2
NUM_TRIALS = 8


class RateSweep:
    """Sweep of trials, by default eight, that keeps their last losses by learning rate.

    Args:
        make: Makes the trainable, which is not timed.
        base_rate: Smallest learning rate; the others are its multiples.
        num_epochs: Iterations of a trial.
        num: Number of trials.
    """

    def __init__(
        self, make: Any, *, base_rate: float, num_epochs: int, num: int = NUM_TRIALS
    ) -> None:
        self._make = make
        self._rates = [base_rate * (1 + number) for number in range(num)]
        self._num_epochs = num_epochs
        self.losses: dict[float, float] = {}
        #: Mean seconds of training of the last sweep's trials.
        self.trial_s = 0.0

    def prepare(self) -> None:
        """Create the trainable."""
        self._trainable = self._make()

    def run(self) -> None:
        """Run the trials."""
        with tempfile.TemporaryDirectory() as folder:
            analysis = tune.run(
                self._trainable,
                config={"learning_rate": tune.grid_search(self._rates)},
                max_concurrent_trials=NUM_CPUS,
                reuse_actors=True,
                stop={"training_iteration": self._num_epochs},
                storage_path=folder,
                verbose=0,
            )
        times = [trial.last_result["time_total_s"] for trial in analysis.trials]
        self.trial_s = statistics.fmean(times)
        self.losses = {
            trial.config["learning_rate"]: trial.last_result["loss"] for trial in analysis.trials
        }
