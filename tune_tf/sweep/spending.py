"""What a sweep has spent."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.experiment import Trial

_HOUR_S = 3600


class Spending:
    """Counts epochs and the time for which devices are reserved, over all sessions of a sweep.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._running: dict[str, Trial] = {}
        self.epochs = 0
        """Iterations of all trials, those included that were done again."""
        self.time_s = 0.0
        """Seconds in which it was driven."""
        self._cpu_s = self._gpu_s = 0.0

    @property
    def cpu_hours(self) -> float:
        """Hours of reserved CPUs."""
        return self._cpu_s / _HOUR_S

    @property
    def gpu_hours(self) -> float:
        """Hours of reserved GPUs; of fractions, their part."""
        return self._gpu_s / _HOUR_S

    def begin(self) -> None:
        """Count time from now on."""
        self._looked = self._clock()

    def started(self, trial: Trial) -> None:
        """Count a trial from now on, as long as it runs."""
        self.look()
        self._running[trial.trial_id] = trial

    def look(self) -> None:
        """Count the time since the last look; trials that run no more are counted up to now."""
        now = self._clock()
        elapsed_s, self._looked = now - self._looked, now
        self.time_s += elapsed_s
        for trial_id, trial in list(self._running.items()):
            reserved = trial.placement_group_factory.required_resources
            self._cpu_s += elapsed_s * reserved.get("CPU", 0)
            self._gpu_s += elapsed_s * reserved.get("GPU", 0)
            if trial.status != Trial.RUNNING:
                del self._running[trial_id]

    def to_dict(self) -> dict[str, float]:
        """Return what has been spent as plain data."""
        return {
            "epochs": self.epochs,
            "time_s": self.time_s,
            "cpu_s": self._cpu_s,
            "gpu_s": self._gpu_s,
        }

    def go_on_from(self, spent: Mapping[str, Any]) -> None:
        """Take up what an earlier session of the sweep has spent."""
        self.epochs = int(spent["epochs"])
        self.time_s = float(spent["time_s"])
        self._cpu_s, self._gpu_s = float(spent["cpu_s"]), float(spent["gpu_s"])
        self._running.clear()
        self.begin()
