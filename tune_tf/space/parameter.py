"""Parameters of a search space: float and integer ranges, choices and constants."""

import abc
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator, ValidationInfo, field_validator

from tune_tf.errors import did_you_mean
from tune_tf.space.condition import ALWAYS, Condition
from tune_tf.space.hashable import hashable
from tune_tf.validation import short_repr, validated

if TYPE_CHECKING:
    import numpy as np

TOLERANCE = 1e-9
"""Relative rounding error of a float after ``exp(log(x))`` or ``k * step``."""


def _condition(when: Any) -> Condition | None:
    return (Condition(when) or None) if when is not None else None


_When = Annotated[Mapping[str, Any] | None, PlainValidator(_condition)]


class Parameter(abc.ABC):
    """Entry of a search space: frozen, comparable and picklable.

    Attributes:
        when: Values of other parameters under which this one is active, None for always.
    """

    when: Mapping[str, Any] | None

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


@validated
class _Range(Parameter):
    """Numbers between two ends."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    when: _When = None

    @property
    def num_steps(self) -> int:
        """Number of steps between the ends; 0 without a step."""
        return round((self.high - self.low) / self.step) if self.step else 0

    @field_validator("high")
    @classmethod
    def _check_high(cls, high: float, info: ValidationInfo) -> float:
        if (low := info.data.get("low", high)) > high:
            raise ValueError(f"{high:g} is below low {low:g}: give the smaller end first")
        return high

    @field_validator("log")
    @classmethod
    def _check_log(cls, log: bool, info: ValidationInfo) -> bool:
        if log and (low := info.data.get("low", 1)) <= 0:
            raise ValueError(f"needs low above 0, not {low:g}: raise it, or search uniformly")
        return log

    @field_validator("step")
    @classmethod
    def _check_step(cls, step: float | None, info: ValidationInfo) -> float | None:
        if step is None:
            return None
        if step <= 0:
            raise ValueError(f"must be above 0, not {step:g}")
        if info.data.get("log"):
            if isinstance(step, float) or step != 1:
                raise ValueError(
                    f"is {step:g}, but a logarithmic range has none: leave one of the two out"
                )
        elif {"low", "high"} <= info.data.keys():
            low, high = info.data["low"], info.data["high"]
            if not _is_whole((high - low) / step):
                nearest = low + math.floor((high - low) / step) * step
                raise ValueError(
                    f"{step:g} does not lead from low {low:g} to high {high:g}: "
                    f"{nearest:g} is the nearest below it"
                )
        return step


@validated
class Float(_Range):
    """Real number from ``low`` to ``high``, both included.

    Args:
        low: Smallest value.
        high: Largest value.
        log: Whether values are uniform on a logarithmic scale; ``low`` must then be above 0.
        step: Distance between values, counted from ``low``; None for a continuous range. The range
            must be a whole number of steps, so that ``high`` is one of the values.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: The ends or the step are invalid or do not fit together.
    """

    def __post_init__(self) -> None:
        """Make the ends exact multiples of the step."""
        if self.step:
            # 0.1 * 17 is slightly above 1.7, which Optuna does not accept as a multiple of 0.1.
            low, step = (Decimal(f"{number:.15g}") for number in (self.low, self.step))
            high = low + self.num_steps * step
            for name, end in {"low": low, "high": high, "step": step}.items():
                object.__setattr__(self, name, float(end))

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


@validated
class Int(_Range):
    """Integer from ``low`` to ``high``, both included.

    Args:
        low: Smallest value.
        high: Largest value.
        log: Whether values are uniform on a logarithmic scale; ``low`` must then be above 0.
        step: Distance between values, counted from ``low``. The range must be a whole number of
            steps, so that ``high`` is one of the values.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: The ends or the step are invalid or do not fit together.
    """

    low: int
    high: int
    step: int = 1

    @field_validator("low", "high", "step", mode="before")
    @classmethod
    def _parse_number(cls, value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

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


@validated
class Choice(Parameter):
    """One of several options, in no order.

    Args:
        options: At least one option, no two equal; lists and dicts are allowed.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: The options are not a list, are empty, or contain equal ones.
    """

    options: Sequence[Any]
    when: _When = None

    @field_validator("options", mode="plain")
    @classmethod
    def _parse_options(cls, options: Any) -> tuple[Any, ...]:
        if isinstance(options, str | bytes) or not isinstance(options, Sequence):
            hint = f": write [{options}]" if isinstance(options, str) else ""
            raise ValueError(f"must be a list, like [a, b], not {short_repr(options)}{hint}")
        if not options:
            raise ValueError("must not be empty: give at least one")
        keys = [hashable(option) for option in options]
        for option, key in zip(options, keys, strict=True):
            if keys.count(key) > 1:
                raise ValueError(f"have {option!r} or its equal twice: leave one of them out")
        return tuple(options)

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


@validated
class Constant(Parameter):
    """Value that is the same in every config.

    Args:
        value: Any value; plain data if the space is written to a file.
        when: Values of other parameters under which this one is active, None for always.

    Raises:
        InvalidSettingsError: ``when`` is not a condition.
    """

    value: Any
    when: _When = None

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
