"""Filters of trials: ``val_accuracy>=0.9``."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tune_tf.errors import InvalidSettingsError

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT = re.compile(r"\s*([^<>=!\s]+)\s*(!=|<=|>=|==|=|<|>)\s*(.*?)\s*")
_FORM = "FIELD=VALUE, or with != < <= > >= instead of =, for example 'outcome=completed'"


@dataclass(frozen=True)
class TrialFilter:
    """A comparison of a field with a value.

    Args:
        field: Name of the field, as the user writes it.
        relation: ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        value: Value to compare with; numerically if both are numbers.
    """

    field: str
    relation: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "TrialFilter":
        """Parse a condition such as ``outcome=completed``.

        Raises:
            InvalidSettingsError: The text is not a condition.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidSettingsError([f"a condition must be {_FORM}, not {text!r}"])
        field, relation, value = match.groups()
        return cls(field, "=" if relation == "==" else relation, value)

    def holds(self, value: Any) -> bool:
        """Return whether a trial's value meets the condition.

        None, for a missing field, meets only ``!=``. Text never meets ``<`` or ``>`` with a number.
        """
        if value is None:
            return self.relation == "!="
        number = _number(self.value)
        if number is not None and isinstance(value, int | float) and not isinstance(value, bool):
            return _COMPARE[self.relation](value, number)
        if self.relation not in ("=", "!="):
            return number is None and _COMPARE[self.relation](str(value), self.value)
        return _COMPARE[self.relation](str(value).lower(), self.value.lower())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
