"""Keeps the driver's memory small in sweeps of many trials."""

from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial


class TrimTrials(Callback):
    """Forgets the running averages of trials that have ended; a Tune callback.

    Of each metric of each trial Tune keeps the last values, their means and extremes for as long as
    the sweep runs, and writes them into its state again and again: half of what a trial takes in
    the driver. A sweep's best trial is found by last values, so nobody asks for them.
    """

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forget."""
        _forget(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Forget."""
        _forget(trial)


def _forget(trial: Trial) -> None:
    # Both: a trial that reported once more after all would begin them together.
    trial.run_metadata.metric_analysis = {}
    trial.run_metadata.metric_n_steps = {}
