"""What a trial must keep to be of use: a bound on a metric that it reports."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tune_tf.errors import ErrorDetail, InvalidSettingsError

_TEXT = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")
_FORM = "a bound such as '<= 2e6' or '>= 0.9'"


@dataclass(frozen=True)
class Constraint:
    """A bound on a reported metric, itself included: ``latency_ms <= 3``.

    Args:
        metric: Name as it is reported.
        relation: ``"<="`` or ``">="``.
        bound: A finite number, in the metric's unit.

    Raises:
        InvalidSettingsError: One of them is not as above; all faults at once.
    """

    metric: str
    relation: Literal["<=", ">="]
    bound: float

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = []
        if not isinstance(self.metric, str) or not self.metric:
            faults.append(f"metric must be the name of a reported metric, not {self.metric!r}")
        if self.relation not in ("<=", ">="):
            faults.append(f"relation must be '<=' or '>=', not {self.relation!r}")
        number = isinstance(self.bound, int | float) and not isinstance(self.bound, bool)
        if not number or not math.isfinite(self.bound):
            faults.append(f"bound must be a finite number, not {self.bound!r}")
        if faults:
            raise InvalidSettingsError(faults)
        object.__setattr__(self, "bound", float(self.bound))

    @classmethod
    def parse(cls, metric: str, text: str) -> "Constraint":
        """Return the constraint that a text such as ``"<= 2e6"`` puts on a metric.

        Raises:
            InvalidSettingsError: The text is no bound.
        """
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise InvalidSettingsError([f"must be {_FORM}, not {text!r}"])
        relation, number = match.groups()
        try:
            bound = float(number)
        except ValueError:
            raise InvalidSettingsError([f"must be {_FORM}, not {text!r}"]) from None
        return cls(metric, relation, bound)  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> "tuple[Constraint, ...]":
        """Return the constraints of a mapping such as ``{params_count: "<= 2e6"}``.

        A metric with a bound on both sides has a list of two texts.

        Raises:
            InvalidSettingsError: With all faults, each placed by its metric.
        """
        if not isinstance(mapping, Mapping):
            raise InvalidSettingsError(
                [f"constraints must be a mapping of metrics to bounds, not {mapping!r}"]
            )
        made: list[Constraint] = []
        faults: list[ErrorDetail] = []
        for metric, bounds in mapping.items():
            for text in bounds if isinstance(bounds, list | tuple) else [bounds]:
                try:
                    made.append(cls.parse(metric, text))
                except InvalidSettingsError as error:
                    faults += [ErrorDetail(str(metric), fault.what) for fault in error.faults]
        if faults:
            raise InvalidSettingsError(faults)
        return tuple(made)

    def violation(self, value: object) -> float:
        """Return by how much a value breaks the bound, in the metric's unit.

        Zero or less means that it is kept. What is no finite number breaks it by infinity.
        """
        if not isinstance(value, int | float) and not hasattr(value, "__float__"):
            return math.inf
        number = float(value)
        if not math.isfinite(number):
            return math.inf
        return number - self.bound if self.relation == "<=" else self.bound - number

    def holds(self, result: Mapping[str, Any]) -> bool:
        """Return whether a result keeps the bound; one without the metric does not."""
        return self.violation(result.get(self.metric)) <= 0

    def __str__(self) -> str:
        """Return ``latency_ms <= 3``."""
        return f"{self.metric} {self.relation} {self.bound:g}"


def is_feasible(constraints: Iterable[Constraint], result: Mapping[str, Any]) -> bool:
    """Return whether a result keeps all constraints."""
    return all(each.holds(result) for each in constraints)
