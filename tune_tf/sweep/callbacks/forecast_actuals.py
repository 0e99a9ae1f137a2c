"""Recording of a sweep's actuals beside its forecast."""

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
    """Comparison of a sweep's forecast with its actuals.

    Args:
        begun_s: Start of this session, before that of Ray, in seconds since 1970.
    """

    begun_s: float
    clock: Callable[[], float] = time.time

    @classmethod
    def begin(cls, clock: Callable[[], float] = time.time) -> "ForecastActuals":
        """Start the clock of a session."""
        return cls(clock(), clock)

    def copy_forecast(self, folder: SweepFolder) -> None:
        """Copy the forecast of the sweep's settings, if any, into its folder."""
        forecast = read_forecast(folder.config)
        if forecast is not None:
            write_actuals(folder.path, ForecastWithActuals(forecast, None))

    def write(self, result: SweepResult, *, closed: bool) -> None:
        """Write the actuals of a sweep that has a forecast.

        ``closed`` says whether the report and the best model have been written.
        """
        saved = read_actuals(result.path)
        if saved is None:
            return
        earlier = EventHistory.read(result.path).sessions[:-1]
        worked_s = sum(session.last_s - session.begun_s for session in earlier)
        actuals = Actuals.of(result, worked_s + self.clock() - self.begun_s, closed=closed)
        try:
            write_actuals(result.path, ForecastWithActuals(saved.forecast, actuals))
        except OSError as error:
            _log.warning("the actuals of %s could not be written: %s", result.sweep_id, error)
