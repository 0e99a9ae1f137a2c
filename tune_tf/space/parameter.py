"""Interface of search space parameters, and constants."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tune_tf.space.condition import ALWAYS, Condition
from tune_tf.space.frozen import hashable

if TYPE_CHECKING:
    import numpy as np


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

    def _freeze_when(self) -> None:
        given = self.when
        condition = None if given is None else Condition(given)
        object.__setattr__(self, "when", condition or None)

    @abc.abstractmethod
    def error_for(self, value: Any) -> str | None:
        """Return why a value does not belong to this parameter, or None if it does."""

    @abc.abstractmethod
    def draw(self, rng: "np.random.Generator") -> Any:
        """Return a random value."""

    @property
    @abc.abstractmethod
    def smallest(self) -> float | None:
        """Return the smallest number among the values, or None if there is none."""


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

    def __post_init__(self) -> None:
        """Validate ``when``."""
        self._freeze_when()

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

    @property
    def smallest(self) -> float | None:
        """Return the constant if it is a number."""
        return smallest_number([self.value])


def is_number(value: object) -> bool:
    """Return whether a value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def smallest_number(values: "list[Any]") -> float | None:
    """Return the smallest number among values, or None if there is none."""
    return min((value for value in values if is_number(value)), default=None)
