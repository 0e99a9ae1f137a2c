"""What a searcher reads from results: objectives and constraints."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.study import StudyDirection

from tune_tf.constraint import Constraint
from tune_tf.errors import InvalidSettingsError, UnknownMetricError, near_ones
from tune_tf.objective import Objective
from tune_tf.outcome import is_finite
from tune_tf.result_keys import own_metrics


@dataclass(frozen=True)
class SearchObjectives:
    """The metrics that trials must report, and what is wanted of them.

    Args:
        objectives: At least one; the first is the leading one, whose curve is kept and which
            schedulers look at.
        constraints: Bounds on reported metrics.
    """

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(
        cls,
        objective: Objective | Sequence[Objective],
        constraints: Mapping[str, Any] | Iterable[Constraint] | None,
    ) -> "SearchObjectives":
        """Return the goals given in any of the forms that a searcher takes.

        Raises:
            InvalidSettingsError: There is no objective, a metric is named twice, or an entry is
                neither an objective nor a constraint; all faults at once.
        """
        objectives = (objective,) if isinstance(objective, Objective) else tuple(objective)
        if isinstance(constraints, Mapping):
            constraints = Constraint.from_dict(constraints)
        bounds = tuple(constraints or ())
        faults = [
            f"objective must be an Objective or several, not {each!r}"
            for each in objectives
            if not isinstance(each, Objective)
        ]
        faults += [
            f"constraints must be Constraint objects or {{metric: '<= 3'}}, not {each!r}"
            for each in bounds
            if not isinstance(each, Constraint)
        ]
        if not objectives:
            faults.append("objective is empty: give at least one metric and mode")
        if not faults:
            metrics = [each.metric for each in objectives]
            faults += [
                f"objective names the metric {metric!r} twice: leave one of them out"
                for metric in sorted({each for each in metrics if metrics.count(each) > 1})
            ]
        if faults:
            raise InvalidSettingsError(faults)
        return cls(objectives, bounds)

    @property
    def leading(self) -> Objective:
        """The objective whose curve is kept."""
        return self.objectives[0]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The objectives' metrics, in order."""
        return tuple(each.metric for each in self.objectives)

    @property
    def directions(self) -> list[StudyDirection]:
        """What Optuna calls the modes."""
        return [
            StudyDirection.MAXIMIZE if each.mode == "max" else StudyDirection.MINIMIZE
            for each in self.objectives
        ]

    def check_given(self, metric: str | None, mode: str | None) -> None:
        """Refuse a metric and mode given to ``tune.run`` that are not the leading objective's.

        Raises:
            InvalidSettingsError: One of them is another.
        """
        ours = self.leading
        if (metric or ours.metric) != ours.metric or (mode or ours.mode) != ours.mode:
            raise InvalidSettingsError(
                [
                    (
                        f"tune.run was given metric={metric!r}, mode={mode!r}, but the searcher "
                        f"was made for metric={ours.metric!r}, mode={ours.mode!r}; leave them out "
                        "of tune.run"
                    )
                ]
            )

    def check(self, result: Mapping[str, Any]) -> None:
        """Refuse a result that lacks a metric of an objective or a constraint.

        Raises:
            UnknownMetricError: Names all that are missing, and those reported.
        """
        wanted = {each.metric: f"metric {each.metric!r}" for each in self.objectives}
        for each in self.constraints:
            wanted.setdefault(each.metric, f"metric {each.metric!r} of the constraint {each}")
        missing = [metric for metric in wanted if metric not in result]
        if not missing:
            return
        own = own_metrics(result)
        names = sorted(name for name, value in own.items() if isinstance(value, float | int))
        what = " and ".join(f"{wanted[metric]}{near_ones(metric, names)}" for metric in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise UnknownMetricError(
            f"{what} {verb} not reported; the trial reports {', '.join(names)}"
        )

    def values(self, result: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Return the objectives' values in a result; None unless all are finite numbers."""
        found = [result.get(each.metric) for each in self.objectives]
        if not all(is_finite(value) for value in found):
            return None
        return tuple(float(value) for value in found)  # type: ignore[arg-type]

    def violations(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Return by how much each constraint is broken, by its text, as Optuna can use it.

        Optuna's Gaussian process cannot take infinity, so what is not known counts as broken by
        the size of the bound.
        """
        told: dict[str, float] = {}
        for each in self.constraints:
            violation = each.violation(result.get(each.metric))
            unknown = max(1.0, abs(each.bound))
            told[str(each)] = violation if math.isfinite(violation) else unknown
        return told

    def __str__(self) -> str:
        """Return ``min loss, max accuracy``."""
        return ", ".join(f"{each.mode} {each.metric}" for each in self.objectives)
