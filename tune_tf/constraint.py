"""What a trial's reported metrics must keep to be worth having."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tune_tf.errors import Fault, InvalidSettingsError, UnknownMetricError, near_ones
from tune_tf.outcome import is_finite

_FORM = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric that trials report.

    Args:
        metric: Name as it is reported, for example ``params_count``.
        relation: ``"<="`` or ``">="``.
        bound: What the metric is compared with; finite, in the metric's own unit.

    Raises:
        InvalidSettingsError: The name is empty, or the others are not of these; all faults at once.
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
        if isinstance(self.bound, bool) or not is_finite(self.bound):
            faults.append(f"bound must be a finite number, not {self.bound!r}")
        if faults:
            raise InvalidSettingsError(faults)

    @classmethod
    def parse(cls, metric: str, text: str) -> "Constraint":
        """Return the constraint that a text such as ``"<= 2e6"`` puts on a metric.

        Raises:
            InvalidSettingsError: The text has another form.
        """
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        try:
            relation, bound = match[1], float(match[2])  # type: ignore[index]
        except (TypeError, ValueError):
            raise InvalidSettingsError(
                [Fault(str(metric), f"must be a bound like '<= 2e6' or '>= 0.9', not {text!r}")]
            ) from None
        return cls(metric, relation, bound)  # type: ignore[arg-type]

    def violation(self, value: Any) -> float:
        """Return by how much a value breaks the bound; 0 or less where it keeps it.

        A value that is no finite number breaks it by infinity.
        """
        if not is_finite(value):
            return math.inf
        excess = float(value) - self.bound
        return excess if self.relation == "<=" else -excess

    def __str__(self) -> str:
        """Return it as it is read: ``params_count <= 2e+06``."""
        return f"{self.metric} {self.relation} {self.bound:g}"


def constraints_of(
    given: Mapping[str, str] | Iterable[Constraint] | None,
) -> tuple[Constraint, ...]:
    """Return constraints from a mapping of metric to bound, or those given.

    Raises:
        InvalidSettingsError: With all faults at once.
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        return tuple(given)
    faults: list[Fault] = []
    made: list[Constraint] = []
    for metric, text in given.items():
        try:
            made.append(Constraint.parse(metric, text))
        except InvalidSettingsError as error:
            faults += error.faults
    if faults:
        raise InvalidSettingsError(faults)
    return tuple(made)


def is_feasible(constraints: Iterable[Constraint], result: Mapping[str, Any]) -> bool:
    """Return whether a result keeps all constraints; a metric it does not hold breaks its own."""
    return all(each.violation(result.get(each.metric)) <= 0 for each in constraints)


def check_reported(constraints: Iterable[Constraint], result: Mapping[str, Any]) -> None:
    """Refuse a constraint on a metric that a trial does not report.

    Raises:
        UnknownMetricError: The result lacks it; names those it holds.
    """
    for constraint in constraints:
        if constraint.metric not in result:
            reported = sorted(k for k, v in result.items() if isinstance(v, float | int))
            raise UnknownMetricError(
                f"constraint {str(constraint)!r} is on a metric that is not reported; the trial "
                f"reports {', '.join(reported)}{near_ones(constraint.metric, reported)}"
            )
