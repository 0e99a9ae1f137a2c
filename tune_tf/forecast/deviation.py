"""How far a forecast was off."""

from dataclasses import dataclass
from typing import Literal

from tune_tf.forecast.actuals import Actuals
from tune_tf.forecast.forecast import Forecast
from tune_tf.forecast.range import Range

Unit = Literal["count", "seconds", "bytes"]


@dataclass(frozen=True)
class Deviation:
    """One number that was forecast, and what it was.

    Args:
        what: In words.
        unit: What it counts.
        forecast: What was expected.
        actual: What it was.
    """

    what: str
    unit: Unit
    forecast: Range
    actual: float

    @property
    def ratio(self) -> float | None:
        """The best guess over what it was; None where it was nothing."""
        return self.forecast.likely / self.actual if self.actual else None

    @property
    def is_within(self) -> bool:
        """Whether it lies in the range."""
        return self.forecast.holds(self.actual)


def deviations(forecast: Forecast, outturn: Actuals) -> tuple[Deviation, ...]:
    """Return what can be compared: wall time, trials, iterations, memory and disk.

    As long as the report is still being written, its own part is left out of time and disk.
    """
    wall_s, disk_bytes = forecast.wall_s, forecast.disk_bytes
    if not outturn.closed:
        wall_s = wall_s.minus(forecast.closing_s)
        disk_bytes = disk_bytes.minus(forecast.closing_bytes)
    until = "" if outturn.closed else ", up to this report"
    rows = [
        Deviation(f"wall time{until}", "seconds", wall_s, outturn.wall_s),
        Deviation("trials", "count", forecast.trials, outturn.trials),
        Deviation("iterations", "count", forecast.epochs, outturn.epochs),
    ]
    if outturn.memory_bytes is not None:
        memory = forecast.memory_bytes
        rows.append(Deviation("peak memory of a trial", "bytes", memory, outturn.memory_bytes))
    rows.append(
        Deviation(f"the sweep's folder{until}", "bytes", disk_bytes, float(outturn.disk_bytes))
    )
    return tuple(rows)
