"""Constraints: bounds on reported metrics."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tune_tf.errors import ErrorDetail, InvalidSettingsError, adding_errors_to
from tune_tf.outcome import is_finite
from tune_tf.validation import validated

_TEXT = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")
_FORM = "a bound such as '<= 2e6' or '>= 0.9'"


@validated
class Constraint:
    """An inclusive bound on a reported metric: ``latency_ms <= 3``.

    Args:
        metric: Name of the metric.
        relation: ``"<="`` or ``">="``.
        bound: A finite number, in the metric's unit.

    Raises:
        InvalidSettingsError: An argument is invalid; lists all errors.
    """

    metric: Annotated[str, Field(min_length=1)]
    relation: Literal["<=", ">="]
    bound: float

    @classmethod
    def parse(cls, metric: str, text: str) -> "Constraint":
        """Parse a bound such as ``"<= 2e6"`` on a metric; raise InvalidSettingsError for others."""
        try:
            relation, number = _TEXT.fullmatch(text).groups()  # type: ignore[union-attr]
            bound = float(number)
        except (TypeError, AttributeError, ValueError):
            raise InvalidSettingsError(f"must be {_FORM}, not {text!r}") from None
        return cls(metric, relation, bound)  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> "tuple[Constraint, ...]":
        """Parse a mapping such as ``{params_count: "<= 2e6"}``.

        A metric with two bounds has a list of two texts.

        Raises:
            InvalidSettingsError: With all errors, each placed by its metric.
        """
        if not isinstance(mapping, Mapping):
            raise InvalidSettingsError(
                f"must be a mapping of metrics to bounds, like {{size: <= 2e6}}, not {mapping!r}"
            )
        constraints: list[Constraint] = []
        errors: list[ErrorDetail] = []
        for metric, bounds in mapping.items():
            for text in bounds if isinstance(bounds, list | tuple) else [bounds]:
                with adding_errors_to(errors, str(metric)):
                    constraints.append(cls.parse(metric, text))
        if errors:
            raise InvalidSettingsError(errors)
        return tuple(constraints)

    def violation(self, value: object) -> float:
        """Return by how much a value violates the bound, in the metric's unit.

        Zero or less means that it is satisfied; a non-finite value violates it by infinity.
        """
        if not is_finite(value):
            return math.inf
        number = float(value)  # type: ignore[arg-type]
        return number - self.bound if self.relation == "<=" else self.bound - number

    def holds(self, result: Mapping[str, Any]) -> bool:
        """Return whether a result satisfies the bound; one without the metric does not."""
        return self.violation(result.get(self.metric)) <= 0

    def __str__(self) -> str:
        """Return ``latency_ms <= 3``."""
        return f"{self.metric} {self.relation} {self.bound:g}"


def is_feasible(constraints: Iterable[Constraint], result: Mapping[str, Any]) -> bool:
    """Return whether a result satisfies all constraints."""
    return all(each.holds(result) for each in constraints)
