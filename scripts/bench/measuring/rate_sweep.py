"""Sweep over learning rates on two slots, with reused actors."""

import tempfile
from typing import Any

from ray import tune

NUM_CPUS = 2
NUM_TRIALS = 8


class RateSweep:
    """Sweep of eight trials that keeps their last losses by learning rate.

    Args:
        make: Makes the trainable, which is not timed.
        base_rate: Smallest learning rate; the others are its multiples.
        num_epochs: Iterations of a trial.
    """

    def __init__(self, make: Any, *, base_rate: float, num_epochs: int) -> None:
        self._make = make
        self._rates = [base_rate * (1 + number) for number in range(NUM_TRIALS)]
        self._num_epochs = num_epochs
        self.losses: dict[float, float] = {}

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
        self.losses = {
            trial.config["learning_rate"]: trial.last_result["loss"] for trial in analysis.trials
        }
