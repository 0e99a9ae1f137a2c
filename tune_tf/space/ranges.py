"""Float and integer ranges."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError
from tune_tf.space.parameter import Parameter

if TYPE_CHECKING:
    import numpy as np

TOLERANCE = 1e-9
"""Relative rounding error of a float after ``exp(log(x))`` or ``k * step``."""


@dataclass(frozen=True)
class Float(Parameter):
    """Real number from ``low`` to ``high``, both included.

    Args:
        log: Whether values are uniform on a logarithmic scale; ``low`` must then be above 0.
        step: Distance between values, counted from ``low``; None for a continuous range. The range
            must be a whole number of steps, so that ``high`` is one of the values.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: The ends or the step are invalid or do not fit together.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    when: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Validate the range."""
        numbers = {"low": self.low, "high": self.high}
        if self.step is not None:
            numbers["step"] = self.step
        _check(self, numbers, whole=False)
        for name, number in numbers.items():
            object.__setattr__(self, name, float(number))
        if self.step:
            # 0.1 * 17 is slightly above 1.7, which Optuna does not accept as a multiple of 0.1.
            low, step = (Decimal(f"{number:.15g}") for number in (self.low, self.step))
            high = low + self.num_steps * step
            for name, end in {"low": low, "high": high, "step": step}.items():
                object.__setattr__(self, name, float(end))

    @property
    def num_steps(self) -> int:
        """Number of steps between the ends; 0 without a step."""
        return round((self.high - self.low) / self.step) if self.step else 0

    def error_for(self, value: Any) -> str | None:
        """Return why a value is not in the range, or None if it is."""
        slack = TOLERANCE * max(abs(self.low), abs(self.high))
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not self.low - slack <= value <= self.high + slack:
            return f"must be a number from {self.low:g} to {self.high:g}, not {value!r}"
        if self.step and not _is_whole((value - self.low) / self.step):
            return f"must be {self.low:g} plus a multiple of {self.step:g}, not {value!r}"
        return None

    def draw(self, rng: "np.random.Generator") -> float:
        """Return a random value, uniform over the range or its logarithm."""
        if self.step:
            value = self.low + self.step * int(rng.integers(self.num_steps, endpoint=True))
        elif self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = float(rng.uniform(self.low, self.high))
        return min(max(value, self.low), self.high)

    @property
    def smallest(self) -> float | None:
        """Return the lower end."""
        return self.low


@dataclass(frozen=True)
class Int(Parameter):
    """Integer from ``low`` to ``high``, both included.

    Args:
        log: Whether values are uniform on a logarithmic scale; ``low`` must then be above 0.
        step: Distance between values, counted from ``low``. The range must be a whole number of
            steps, so that ``high`` is one of the values.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: The ends or the step are invalid or do not fit together.
    """

    low: int
    high: int
    log: bool = False
    step: int = 1
    when: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Validate the range."""
        numbers = {"low": self.low, "high": self.high, "step": self.step}
        _check(self, numbers, whole=True)
        for name, number in numbers.items():
            object.__setattr__(self, name, int(number))

    @property
    def num_steps(self) -> int:
        """Number of steps between the ends."""
        return (self.high - self.low) // self.step

    def error_for(self, value: Any) -> str | None:
        """Return why a value is not in the range, or None if it is."""
        number = isinstance(value, Integral) and not isinstance(value, bool)
        if not number or not self.low <= value <= self.high:
            return f"must be an integer from {self.low} to {self.high}, not {value!r}"
        if (value - self.low) % self.step:
            return f"must be {self.low} plus a multiple of {self.step}, not {value!r}"
        return None

    def draw(self, rng: "np.random.Generator") -> int:
        """Return a random value, uniform over the range or its logarithm."""
        if not self.log:
            return self.low + self.step * int(rng.integers(self.num_steps, endpoint=True))
        value = math.floor(math.exp(rng.uniform(math.log(self.low), math.log(self.high + 1))))
        return min(max(value, self.low), self.high)

    @property
    def smallest(self) -> float | None:
        """Return the lower end."""
        return self.low


def _check(range_: Float | Int, numbers: Mapping[str, Any], *, whole: bool) -> None:
    errors: list[ErrorDetail | str] = []
    try:
        range_._freeze_when()  # noqa: SLF001  # part of the constructor
    except InvalidSettingsError as error:
        errors.extend(error.details)
    if not isinstance(range_.log, bool):
        errors.append(f"log must be true or false, not {range_.log!r}")
    wrong = [text for name, value in numbers.items() if (text := _wrong(name, value, whole=whole))]
    errors.extend(wrong)
    if not wrong:
        errors.extend(_misfits(range_))
    if errors:
        raise InvalidSettingsError(errors)


def _wrong(name: str, value: object, *, whole: bool) -> str | None:
    kind = "an integer" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, Real):
        hint = f": write {name} without quotes" if isinstance(value, str) else ""
        return f"{name} must be {kind}, not {value!r}{hint}"
    if not math.isfinite(value):
        return f"{name} must be finite, not {value!r}"
    if whole and float(value) % 1:
        return f"{name} must be an integer, not {value!r}: round it, or use a range of floats"
    return None


def _misfits(range_: Float | Int) -> list[str]:
    low, high, step = range_.low, range_.high, range_.step
    errors = []
    if low > high:
        errors.append(f"low {low!r} is above high {high!r}: give the smaller end first")
    if range_.log is True and low <= 0:
        errors.append(
            f"low must be above 0 for a logarithmic range, not {low!r}: raise it, or search "
            "uniformly"
        )
    if step is None:
        return errors
    if step <= 0:
        errors.append(f"step must be above 0, not {step!r}")
    elif range_.log is True and (isinstance(range_, Float) or step != 1):
        errors.append(
            f"a logarithmic range has no step, but step is {step!r}: leave one of the two out"
        )
    elif low <= high and not _is_whole((high - low) / step):
        nearest = low + math.floor((high - low) / step) * step
        errors.append(
            f"high {high!r} is not low {low!r} plus a multiple of step {step!r}: "
            f"{nearest:g} is the nearest below it"
        )
    return errors


def _is_whole(ratio: float) -> bool:
    return math.isclose(ratio, round(ratio), rel_tol=TOLERANCE, abs_tol=1e-6)
