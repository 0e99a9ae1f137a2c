"""Epochs, time and device hours spent by a sweep."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.experiment import Trial

_HOUR_S = 3600


class Spending:
    """Counter of epochs and reserved device hours over all sessions of a sweep."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._updated_s = clock()
        self._running: dict[str, Trial] = {}
        self.epochs = 0
        """Iterations of all trials, including repeated ones."""
        self.time_s = 0.0
        """Running time of the sweep in seconds."""
        self._cpu_s = self._gpu_s = 0.0

    @property
    def cpu_hours(self) -> float:
        """Hours of reserved CPUs."""
        return self._cpu_s / _HOUR_S

    @property
    def gpu_hours(self) -> float:
        """Hours of reserved GPUs, including fractions of a GPU."""
        return self._gpu_s / _HOUR_S

    def begin(self) -> None:
        """Count time from now on."""
        self._updated_s = self._clock()

    def add(self, trial: Trial) -> None:
        """Count a trial while it runs."""
        self.update()
        self._running[trial.trial_id] = trial

    def update(self) -> None:
        """Add the time since the last update, then drop stopped trials."""
        now = self._clock()
        elapsed_s, self._updated_s = now - self._updated_s, now
        self.time_s += elapsed_s
        for trial_id, trial in list(self._running.items()):
            reserved = trial.placement_group_factory.required_resources
            self._cpu_s += elapsed_s * reserved.get("CPU", 0)
            self._gpu_s += elapsed_s * reserved.get("GPU", 0)
            if trial.status != Trial.RUNNING:
                del self._running[trial_id]

    def to_dict(self) -> dict[str, float]:
        """Return the totals for JSON."""
        return {
            "epochs": self.epochs,
            "time_s": self.time_s,
            "cpu_s": self._cpu_s,
            "gpu_s": self._gpu_s,
        }

    def restore(self, spent: Mapping[str, Any]) -> None:
        """Continue from the totals of an earlier session."""
        self.epochs = int(spent["epochs"])
        self.time_s = float(spent["time_s"])
        self._cpu_s, self._gpu_s = float(spent["cpu_s"]), float(spent["gpu_s"])
        self._running.clear()
        self.begin()
