"""Categorical parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tune_tf.errors import ErrorDetail, InvalidSettingsError, did_you_mean
from tune_tf.space.frozen import hashable
from tune_tf.space.parameter import Parameter, smallest_number

if TYPE_CHECKING:
    import numpy as np


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
        errors: list[ErrorDetail] = []
        try:
            self._freeze_when()
        except InvalidSettingsError as error:
            errors.extend(error.details)
        if isinstance(self.options, str | bytes) or not isinstance(self.options, Sequence):
            errors.append(
                ErrorDetail(
                    "", f"options must be a list, like [a, b], not {_format_options(self.options)}"
                )
            )
        elif not self.options:
            errors.append(ErrorDetail("", "options must not be empty: give at least one"))
        else:
            errors.extend(self._repeated())
        if errors:
            raise InvalidSettingsError(errors)
        object.__setattr__(self, "options", tuple(self.options))

    def _repeated(self) -> list[ErrorDetail]:
        first: dict[Any, Any] = {}
        errors = []
        for option in self.options:
            key = hashable(option)
            if key in first:
                earlier = first[key]
                alike = "" if repr(earlier) == repr(option) else f" (equal to {earlier!r})"
                errors.append(
                    ErrorDetail(
                        "", f"option {option!r}{alike} is given twice: leave one of them out"
                    )
                )
            first.setdefault(key, option)
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

    @property
    def smallest(self) -> float | None:
        """Return the smallest number among the options."""
        return smallest_number(list(self.options))


def _format_options(options: object) -> str:
    if isinstance(options, str):
        return f"{options!r}: write [{options}]"
    return repr(options)
