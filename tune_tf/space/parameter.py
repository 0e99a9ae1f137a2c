"""Parameters of a search space: float and integer ranges, choices and constants."""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to, did_you_mean
from tune_tf.space.condition import ALWAYS, Condition
from tune_tf.space.frozen import hashable

if TYPE_CHECKING:
    import numpy as np

TOLERANCE = 1e-9
"""Relative rounding error of a float after ``exp(log(x))`` or ``k * step``."""


class Parameter(abc.ABC):
    """Entry of a search space: frozen, comparable and picklable.

    Attributes:
        when: Values of other parameters under which this one is active, None for always.
    """

    when: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        """Validate the settings."""
        when_errors: list[ErrorDetail] = []
        with adding_errors_to(when_errors):
            condition = None if self.when is None else Condition(self.when)
            object.__setattr__(self, "when", condition or None)
        errors: list[ErrorDetail | str] = [*when_errors, *self._setting_errors()]
        if errors:
            raise InvalidSettingsError(errors)

    def _setting_errors(self) -> list[str]:
        return []

    @property
    def condition(self) -> Condition:
        """``when`` as a condition, which always holds if ``when`` is None."""
        return self.when if isinstance(self.when, Condition) else ALWAYS

    @abc.abstractmethod
    def error_for(self, value: Any) -> str | None:
        """Return why a value does not belong to this parameter, or None if it does."""

    @abc.abstractmethod
    def draw(self, rng: "np.random.Generator") -> Any:
        """Return a random value."""


class _Range(Parameter):
    """Numbers between two ends."""

    number_type: ClassVar[type] = float

    low: float
    high: float
    log: bool
    step: float | None

    def __post_init__(self) -> None:
        """Validate the range and convert its numbers."""
        super().__post_init__()
        for name, number in self._numbers().items():
            object.__setattr__(self, name, self.number_type(number))

    def _numbers(self) -> dict[str, Any]:
        numbers = {"low": self.low, "high": self.high, "step": self.step}
        if self.step is None and self.number_type is float:
            del numbers["step"]
        return numbers

    def _setting_errors(self) -> list[str]:
        errors: list[str] = []
        if not isinstance(self.log, bool):
            errors.append(f"log must be true or false, not {self.log!r}")
        numbers = self._numbers().items()
        number_errors = [text for item in numbers if (text := self._number_error(*item))]
        return [*errors, *(number_errors or self._range_errors())]

    def _number_error(self, name: str, value: object) -> str | None:
        is_integer = self.number_type is int
        if isinstance(value, bool) or not isinstance(value, Real):
            kind = "an integer" if is_integer else "a number"
            hint = f": write {name} without quotes" if isinstance(value, str) else ""
            return f"{name} must be {kind}, not {value!r}{hint}"
        if not math.isfinite(value):
            return f"{name} must be finite, not {value!r}"
        if is_integer and float(value) % 1:
            return f"{name} must be an integer, not {value!r}: round it, or use a range of floats"
        return None

    def _range_errors(self) -> list[str]:
        low, high, step = self.low, self.high, self.step
        errors = []
        if low > high:
            errors.append(f"low {low!r} is above high {high!r}: give the smaller end first")
        if self.log is True and low <= 0:
            errors.append(
                f"low must be above 0 for a logarithmic range, not {low!r}: raise it, or search "
                "uniformly"
            )
        if step is None:
            return errors
        if step <= 0:
            errors.append(f"step must be above 0, not {step!r}")
        elif self.log is True and not (self.number_type is int and step == 1):
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


@dataclass(frozen=True)
class Float(_Range):
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
        """Validate the range and make its ends exact multiples of the step."""
        super().__post_init__()
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


@dataclass(frozen=True)
class Int(_Range):
    """Integer from ``low`` to ``high``, both included.

    Args:
        log: Whether values are uniform on a logarithmic scale; ``low`` must then be above 0.
        step: Distance between values, counted from ``low``. The range must be a whole number of
            steps, so that ``high`` is one of the values.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: The ends or the step are invalid or do not fit together.
    """

    number_type = int

    low: int
    high: int
    log: bool = False
    step: int = 1
    when: Mapping[str, Any] | None = None

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


@dataclass(frozen=True)
class Choice(Parameter):
    """One of several options, in no order.

    Args:
        options: At least one option, no two equal; lists and dicts are allowed.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: The options are not a list, are empty, or contain equal ones.
    """

    options: Sequence[Any]
    when: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Validate the settings."""
        super().__post_init__()
        object.__setattr__(self, "options", tuple(self.options))

    def _setting_errors(self) -> list[str]:
        if isinstance(self.options, str | bytes) or not isinstance(self.options, Sequence):
            hint = f": write [{self.options}]" if isinstance(self.options, str) else ""
            return [f"options must be a list, like [a, b], not {self.options!r}{hint}"]
        if not self.options:
            return ["options must not be empty: give at least one"]
        first: dict[Any, Any] = {}
        errors = []
        for option in self.options:
            key = hashable(option)
            if key not in first:
                first[key] = option
            else:
                earlier = first[key]
                alike = "" if repr(earlier) == repr(option) else f" (equal to {earlier!r})"
                errors.append(f"option {option!r}{alike} is given twice: leave one of them out")
        return errors

    def __hash__(self) -> int:
        """Hash by content, lists and dicts too."""
        return hash((hashable(self.options), self.when))

    def error_for(self, value: Any) -> str | None:
        """Return why a value is not among the options, or None if it is."""
        if hashable(value) in {hashable(option) for option in self.options}:
            return None
        texts = [option for option in self.options if isinstance(option, str)]
        near = did_you_mean(value, texts) if isinstance(value, str) else ""
        options = ", ".join(repr(option) for option in self.options)
        return f"must be one of {options}, not {value!r}{near}"

    def draw(self, rng: "np.random.Generator") -> Any:
        """Return a random option; all are equally likely."""
        return self.options[int(rng.integers(len(self.options)))]


@dataclass(frozen=True)
class Constant(Parameter):
    """Value that is the same in every config.

    Args:
        value: Any value; plain data if the space is written to a file.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: ``when`` is not a condition.
    """

    value: Any
    when: Mapping[str, Any] | None = None

    def __hash__(self) -> int:
        """Hash by content, lists and dicts too."""
        return hash((hashable(self.value), self.when))

    def error_for(self, value: Any) -> str | None:
        """Return why a value is not the constant, or None if it is."""
        if hashable(value) == hashable(self.value):
            return None
        return f"must be {self.value!r}, not {value!r}"

    def draw(self, rng: "np.random.Generator") -> Any:  # rng is part of the interface
        """Return the constant."""
        return self.value


def smallest_number(parameter: Parameter) -> float | None:
    """Return the smallest number among a parameter's values, or None if there is none."""
    match parameter:
        case Float(low=low) | Int(low=low):
            return low
        case Choice(options):
            return min(filter(is_number, options), default=None)
        case Constant(value) if is_number(value):
            return float(value)
    return None


def is_number(value: object) -> bool:
    """Return whether a value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(ratio: float) -> bool:
    return math.isclose(ratio, round(ratio), rel_tol=TOLERANCE, abs_tol=1e-6)
