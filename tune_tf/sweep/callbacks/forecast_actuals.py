"""Reckons up, once a sweep has run, what it took against what was forecast."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from tune_tf.events import EventHistory
from tune_tf.forecast import (
    Actuals,
    ForecastWithActuals,
    read_actuals,
    read_forecast,
    write_actuals,
)
from tune_tf.results import SweepResult
from tune_tf.sweep_folder import SweepFolder

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ForecastActuals:
    """When this session of a sweep began.

    Args:
        begun_s: Seconds of the clock, before Ray was started.
        clock: Seconds since 1970.
    """

    begun_s: float
    clock: Callable[[], float] = time.time

    @classmethod
    def begin(cls, clock: Callable[[], float] = time.time) -> "ForecastActuals":
        """Begin now."""
        return cls(clock(), clock)

    def take(self, folder: SweepFolder) -> None:
        """Take the forecast of the sweep's settings into its folder, where one was kept."""
        forecast = read_forecast(folder.config)
        if forecast is not None:
            write_actuals(folder.path, ForecastWithActuals(forecast, None))

    def settle(self, result: SweepResult, *, closed: bool) -> None:
        """Write beside the forecast what the sweep took.

        Args:
            result: What it found.
            closed: Whether report and best model have been written.
        """
        settled = read_actuals(result.path)
        if settled is None:
            return
        earlier = EventHistory.of(result.path).sessions[:-1]
        worked_s = sum(session.last_s - session.begun_s for session in earlier)
        outturn = Actuals.of(result, worked_s + self.clock() - self.begun_s, closed=closed)
        try:
            write_actuals(result.path, ForecastWithActuals(settled.forecast, outturn))
        except OSError as error:
            _log.warning("What %s took could not be written: %s", result.sweep_id, error)
