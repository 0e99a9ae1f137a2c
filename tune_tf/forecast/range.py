"""Estimate with a lower and an upper bound."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class Range:
    """Estimate with a lower and an upper bound.

    Args:
        low: Lower bound, rarely undercut; not negative.
        likely: Best estimate.
        high: Upper bound, rarely exceeded; finite.

    Raises:
        InvalidSettingsError: The numbers are not finite, or not in this order.
    """

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        """Validate the numbers."""
        numbers = (self.low, self.likely, self.high)
        if not all(map(math.isfinite, numbers)) or not 0 <= self.low <= self.likely <= self.high:
            raise InvalidSettingsError(
                [f"a range is three finite numbers 0 <= low <= likely <= high, not {numbers}"]
            )

    @classmethod
    def exactly(cls, value: float) -> "Range":
        """Return the range of a known number."""
        return cls(value, value, value)

    @classmethod
    def of(cls, values: Iterable[float]) -> "Range":
        """Return minimum, median and maximum of at least one number."""
        known = sorted(values)
        return cls(known[0], statistics.median(known), known[-1])

    @classmethod
    def around(cls, likely: float, *, less: float, more: float) -> "Range":
        """Return a range from ``1 - less`` to ``1 + more`` times a number."""
        return cls(likely * max(0.0, 1 - less), likely, likely * (1 + more))

    @classmethod
    def from_dict(cls, data: Any) -> "Range":
        """Restore the output of :meth:`to_dict`."""
        return cls(float(data["low"]), float(data["likely"]), float(data["high"]))

    def to_dict(self) -> dict[str, float]:
        """Convert to plain data."""
        return {"low": self.low, "likely": self.likely, "high": self.high}

    def __add__(self, other: "Range") -> "Range":
        """Add two fully correlated estimates."""
        return Range(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def minus(self, other: "Range") -> "Range":
        """Subtract one summand of this sum, not below zero."""
        return Range(*sorted(max(0.0, a - b) for a, b in zip(self.ends, other.ends, strict=True)))

    def times(self, factor: float) -> "Range":
        """Multiply by a factor."""
        return Range(self.low * factor, self.likely * factor, self.high * factor)

    def at_most(self, limit: float) -> "Range":
        """Clip to an upper limit."""
        return Range(min(self.low, limit), min(self.likely, limit), min(self.high, limit))

    def contains(self, value: float) -> bool:
        """Return whether a number lies in the range, ends included."""
        return self.low <= value <= self.high

    @property
    def ends(self) -> tuple[float, float, float]:
        """Low, likely and high."""
        return self.low, self.likely, self.high
