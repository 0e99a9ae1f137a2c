"""Data of a report: the trials of a sweep with their learning curves."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tune_tf.inspection.trial_view import TrialView
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.outcome_style import STYLES, OutcomeStyle
from tune_tf.record import Session, SweepHistory, has_driver
from tune_tf.results import SweepResult, TrialResult
from tune_tf.space import flatten


@dataclass(frozen=True)
class ReportTrial:
    """Trial in a report.

    Args:
        config: By path, without inactive parameters.
        curve: Finite values of the leading objective by epoch.
        value: The one that it keeps; None if that is not finite.
        end_s: End or last result, in seconds since 1970; None if unknown.
    """

    result: TrialResult
    view: TrialView
    config: Mapping[str, Any]
    curve: Mapping[int, float]
    value: float | None
    end_s: float | None

    @property
    def number(self) -> int:
        """Position in the order of proposal, from 0."""
        return self.result.number

    @property
    def state(self) -> str:
        """Outcome, or what it was doing when the report was written."""
        return str(self.result.outcome.value) if self.result.outcome else self.view.state

    @property
    def style(self) -> OutcomeStyle:
        """Texts and colour of its state."""
        return STYLES[self.state]

    @property
    def is_completed(self) -> bool:
        """Whether it ran to completion."""
        return self.result.outcome is Outcome.COMPLETED


@dataclass(frozen=True)
class ReportData:
    """Result of a sweep, its trials by number, and when it ran."""

    result: SweepResult
    trials: tuple[ReportTrial, ...]
    sessions: tuple[Session, ...] = ()

    @classmethod
    def of(cls, result: SweepResult) -> "ReportData":
        """Read the trials from the folder of a sweep."""
        history = SweepHistory.read(result.path)
        driven = has_driver(result.path)
        space, metric = result.config.space, result.objective.metric
        trials = []
        for trial in result.trials:
            recorded = history.trials[trial.trial_id]
            view = TrialView.of(result.path, recorded, result.config, driven=driven)
            end_s = view.ended_s or recorded.last.get("timestamp")
            config = flatten(space.active(trial.config), space.parameters)
            value = trial.metrics.get(metric)
            value = float(value) if value is not None and is_finite(value) else None
            trials.append(ReportTrial(trial, view, config, view.curve(metric), value, end_s))
        return cls(result, tuple(trials), history.sessions)

    @property
    def objective(self) -> Objective:
        """Leading objective."""
        return self.result.objective

    @property
    def best(self) -> ReportTrial | None:
        """Best trial, or None."""
        return self.ranking[0] if self.result.best_if_any else None

    @property
    def searched(self) -> list[str]:
        """Paths of the parameters with several values, as far as a trial with a value has them."""
        found = {path for it in self.trials if it.value is not None for path in it.config}
        distributions = self.result.config.space.distributions()
        return [path for path, it in distributions.items() if path in found and not it.single()]

    @property
    def by_state(self) -> dict[str, list[ReportTrial]]:
        """Trials by state, in the order of :data:`~tune_tf.outcome_style.STYLES`."""
        groups = {state: [each for each in self.trials if each.state == state] for state in STYLES}
        return {state: trials for state, trials in groups.items() if trials}

    @cached_property
    def ranking(self) -> list[ReportTrial]:
        """All trials, best first."""
        sign = -1.0 if self.objective.mode == "max" else 1.0

        def key(trial: ReportTrial) -> tuple[bool, bool, bool, float]:
            cost = sign * (trial.value or 0.0)
            return trial.value is None, not trial.result.feasible, not trial.is_completed, cost

        return sorted(self.trials, key=key)

    @property
    def start_s(self) -> float | None:
        """Start of the sweep in seconds since 1970; None if unknown."""
        return self.sessions[0].begun_s if self.sessions else None

    @property
    def wall_s(self) -> float | None:
        """Seconds in which the sweep ran; None if unknown."""
        return sum(each.last_s - each.begun_s for each in self.sessions) if self.sessions else None
