"""The unit in which a picture counts time."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class TimeUnit:
    """A unit of time.

    Args:
        seconds: How long it is.
        name: Plural.
    """

    seconds: float
    name: str

    @classmethod
    def of(cls, span_s: float) -> "TimeUnit":
        """Return the unit in which a span of seconds is a handy number."""
        units = [cls(86_400, "days"), cls(3600, "hours"), cls(60, "minutes")]
        fitting = (unit for unit in units if math.isfinite(span_s) and span_s >= 2 * unit.seconds)
        return next(fitting, cls(1, "seconds"))

    @property
    def label(self) -> str:
        """What is written along an axis of time."""
        return f"{self.name} since the first trial began"
