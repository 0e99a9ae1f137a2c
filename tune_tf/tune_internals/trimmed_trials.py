"""Tune callback that reduces the driver's memory in sweeps of many trials."""

from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial


class TrimTrials(Callback):
    """Tune callback that drops the running averages of finished trials.

    For each metric of each trial Tune keeps the last values, means and extremes during the whole
    sweep and saves them again and again: half of a trial's memory in the driver. A sweep's best
    trial is found by last values, so they are not needed.
    """

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Drop the averages."""
        _forget(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Drop the averages."""
        _forget(trial)


def _forget(trial: Trial) -> None:
    # Both: a trial that reported once more after all would begin them together.
    trial.run_metadata.metric_analysis = {}
    trial.run_metadata.metric_n_steps = {}
