"""Objectives and constraints of a search, as read from results."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.study import StudyDirection

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError, UnknownMetricError, did_you_mean
from tune_tf.objective import Objective
from tune_tf.outcome import is_finite
from tune_tf.result_keys import training_metrics


@dataclass(frozen=True)
class SearchCriteria:
    """Objectives, of which the first is the leading one, and bounds on reported metrics."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(
        cls,
        objective: Objective | Sequence[Objective],
        constraints: Mapping[str, Any] | Iterable[Constraint] | None,
    ) -> "SearchCriteria":
        """Create criteria from any of the forms that a searcher accepts.

        Raises:
            InvalidSettingsError: They are none of these; lists all errors.
        """
        objectives = (objective,) if isinstance(objective, Objective) else tuple(objective)
        if isinstance(constraints, Mapping):
            constraints = Constraint.from_dict(constraints)
        bounds = tuple(constraints or ())
        errors = [
            f"objective must be an Objective or several, not {each!r}"
            for each in objectives
            if not isinstance(each, Objective)
        ]
        errors += [
            f"constraints must be Constraint objects or {{metric: '<= 3'}}, not {each!r}"
            for each in bounds
            if not isinstance(each, Constraint)
        ]
        if not objectives:
            errors.append("objective is empty: give at least one metric and mode")
        if not errors:
            metrics = [each.metric for each in objectives]
            errors += [
                f"objective names the metric {metric!r} twice: leave one of them out"
                for metric in sorted({each for each in metrics if metrics.count(each) > 1})
            ]
        if errors:
            raise InvalidSettingsError(errors)
        return cls(objectives, bounds)

    @property
    def leading(self) -> Objective:
        """The objective whose curve is stored and by which schedulers compare trials."""
        return self.objectives[0]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The objectives' metrics, in order."""
        return tuple(each.metric for each in self.objectives)

    @property
    def directions(self) -> list[StudyDirection]:
        """The objectives' directions in Optuna's terms."""
        return [
            StudyDirection.MAXIMIZE if each.mode == "max" else StudyDirection.MINIMIZE
            for each in self.objectives
        ]

    def check(self, result: Mapping[str, Any]) -> None:
        """Reject a result that lacks a metric of an objective or a constraint.

        Raises:
            UnknownMetricError: Names all missing metrics and those that are reported.
        """
        required = {each.metric: f"metric {each.metric!r}" for each in self.objectives}
        for each in self.constraints:
            required.setdefault(each.metric, f"metric {each.metric!r} of the constraint {each}")
        missing = [metric for metric in required if metric not in result]
        if not missing:
            return
        reported = training_metrics(result).items()
        names = sorted(name for name, value in reported if isinstance(value, float | int))
        what = " and ".join(
            f"{required[metric]}{did_you_mean(metric, names)}" for metric in missing
        )
        verb = "is" if len(missing) == 1 else "are"
        raise UnknownMetricError(
            f"{what} {verb} not reported; the trial reports {', '.join(names)}"
        )

    def values(self, result: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Return the objectives' values in a result; None unless all are finite."""
        values = [result.get(each.metric) for each in self.objectives]
        if not all(map(is_finite, values)):
            return None
        return tuple(float(value) for value in values)  # type: ignore[arg-type]

    def has_constraints(self, result: Mapping[str, Any]) -> bool:
        """Return whether a result reports all constrained metrics."""
        return all(each.metric in result for each in self.constraints)

    def violations(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Return by how much each constraint is violated, by its text.

        Optuna's Gaussian process cannot handle infinity, so an unknown value counts as a violation
        by the size of the bound.
        """
        violations: dict[str, float] = {}
        for each in self.constraints:
            violation = each.violation(result.get(each.metric))
            unknown = max(1.0, abs(each.bound))
            violations[str(each)] = violation if math.isfinite(violation) else unknown
        return violations

    def __str__(self) -> str:
        """Return ``min loss, max accuracy``."""
        return ", ".join(f"{each.mode} {each.metric}" for each in self.objectives)
