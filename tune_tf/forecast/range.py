"""A number that is not known yet."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class Range:
    """What a number is likely to be, and how far off that may be.

    Args:
        low: Seldom less; not negative.
        likely: The best guess.
        high: Seldom more; finite.

    Raises:
        InvalidSettingsError: The three are not in this order, or not such numbers.
    """

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        numbers = (self.low, self.likely, self.high)
        if not all(map(math.isfinite, numbers)) or not 0 <= self.low <= self.likely <= self.high:
            raise InvalidSettingsError(
                [f"a range is three finite numbers 0 <= low <= likely <= high, not {numbers}"]
            )

    @classmethod
    def exactly(cls, value: float) -> "Range":
        """Return a number that is known."""
        return cls(value, value, value)

    @classmethod
    def of(cls, values: Iterable[float]) -> "Range":
        """Return the least, the median and the most of some numbers, at least one."""
        known = sorted(values)
        return cls(known[0], statistics.median(known), known[-1])

    @classmethod
    def around(cls, likely: float, *, less: float, more: float) -> "Range":
        """Return a number that may be smaller or larger by so many parts of itself."""
        return cls(likely * max(0.0, 1 - less), likely, likely * (1 + more))

    @classmethod
    def from_dict(cls, data: Any) -> "Range":
        """Return what :meth:`to_dict` wrote."""
        return cls(float(data["low"]), float(data["likely"]), float(data["high"]))

    def to_dict(self) -> dict[str, float]:
        """Return it as plain data."""
        return {"low": self.low, "likely": self.likely, "high": self.high}

    def __add__(self, other: "Range") -> "Range":
        """Return the sum of two that rise and fall together."""
        return Range(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def minus(self, other: "Range") -> "Range":
        """Return what is left of a sum without one of its parts."""
        return Range(*sorted(max(0.0, a - b) for a, b in zip(self.ends, other.ends, strict=True)))

    def times(self, factor: float) -> "Range":
        """Return it so many times."""
        return Range(self.low * factor, self.likely * factor, self.high * factor)

    def at_most(self, limit: float) -> "Range":
        """Return it where a limit holds."""
        return Range(min(self.low, limit), min(self.likely, limit), min(self.high, limit))

    def holds(self, value: float) -> bool:
        """Return whether a number lies within."""
        return self.low <= value <= self.high

    @property
    def ends(self) -> tuple[float, float, float]:
        """The three numbers."""
        return self.low, self.likely, self.high
