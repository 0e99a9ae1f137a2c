"""Progress of a running sweep: best trial, and number of trials per outcome."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.ranking import Candidate, best_of
from tune_tf.tracking.names import MAX_TAG_LENGTH, NUM_ENDED_METRIC, mlflow_key, truncate

BEST_TRIAL_TAG = "tune_tf.best_trial_id"
BEST_CONFIG_TAG = "tune_tf.best_config"


@dataclass(frozen=True)
class BestTrial:
    """Best trial so far.

    Args:
        trial_id: Tune's id.
        name: Tune's name.
        value: The objective's metric.
        config: The trial's config; None if no longer known.
    """

    trial_id: str
    name: str
    value: float
    config: Mapping[str, Any] | None = None


class ProgressSummary:
    """Best trial and counts of a running sweep.

    Args:
        objective: Determines the best trial; None for no best trial.
        constraints: Conditions that the best trial must meet.
        state: Result of :meth:`state` before an interruption; empty for a new sweep.
    """

    def __init__(
        self,
        objective: Objective | None,
        constraints: Sequence[Constraint],
        state: Mapping[str, Any],
    ) -> None:
        self._objective = objective
        self._constraints = tuple(constraints)
        self._candidates: dict[str, Candidate[str]] = {
            key: Candidate(key, Outcome.of_tag(tag), value, feasible)
            for key, tag, value, feasible in state.get("candidates", ())
        }
        self._configs: dict[str, tuple[str, Mapping[str, Any]]] = dict(state.get("configs", {}))
        self._best_reports: dict[str, tuple[float, int]] = dict(state.get("best_reports", {}))
        self._last_metrics: dict[str, float] = {}
        self.best: BestTrial | None = self._find_best()

    def state(self) -> dict[str, Any]:
        """Return the state for a resumed sweep, as a copy in plain data."""
        candidates = [
            (each.key, each.outcome.value, each.value, each.feasible)
            for each in self._candidates.values()
            if each.outcome is not None
        ]
        best = self.best and self.best.trial_id
        configs = {best: self._configs[best]} if best in self._configs else {}
        return {
            "candidates": candidates,
            "configs": configs,
            "best_reports": dict(self._best_reports),
        }

    def record_report(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> None:
        """Record a report of a running trial."""
        objective = self._objective
        if objective is None or not is_finite(value := metrics.get(mlflow_key(objective.metric))):
            return
        known = self._best_reports.get(trial_id)
        better = known is None or (
            value > known[0] if objective.mode == "max" else value < known[0]  # type: ignore[operator]
        )
        if better:
            self._best_reports[trial_id] = value, step  # type: ignore[assignment]

    def best_report(self, trial_id: str) -> tuple[float, int] | None:
        """Return the best value that a running trial reported, and its step."""
        return self._best_reports.get(trial_id)

    def tags(self) -> dict[str, str]:
        """Return the parent run's tags about the best trial."""
        if self.best is None:
            return {}
        tags = {BEST_TRIAL_TAG: self.best.trial_id}
        if self.best.config is not None:
            tags[BEST_CONFIG_TAG] = truncate(
                json.dumps(self.best.config, default=str), MAX_TAG_LENGTH
            )
        return tags

    def is_feasible(self, result: Mapping[str, Any]) -> bool | None:
        """Return whether a result meets the constraints; None without constraints."""
        return is_feasible(self._constraints, result) if self._constraints else None

    def record_end(
        self,
        trial_id: str,
        name: str,
        config: Mapping[str, Any],
        outcome: Outcome,
        result: Mapping[str, Any],
    ) -> bool:
        """Record the outcome and the last, flat result of a trial that will not continue.

        Returns:
            Whether the best trial changed.
        """
        self._best_reports.pop(trial_id, None)
        if self._objective is None:
            return False
        value = result.get(self._objective.metric)
        if not is_finite(value):
            return False
        feasible = self.is_feasible(result) is not False
        number = float(value)  # type: ignore[arg-type]
        self._candidates[trial_id] = Candidate(trial_id, outcome, number, feasible)
        self._configs[trial_id] = name, config
        before, self.best = self.best, self._find_best()
        for other in self._configs.keys() - {self.best and self.best.trial_id}:
            del self._configs[other]
        return self.best is not None and (
            before is None
            or (before.trial_id, before.value) != (self.best.trial_id, self.best.value)
        )

    @staticmethod
    def num_ended(outcomes: Mapping[str, Outcome]) -> int:
        """Return the number of finally ended trials, the step of the parent's reports."""
        return sum(outcome is not Outcome.INTERRUPTED for outcome in outcomes.values())

    def live_metrics(self, outcomes: Mapping[str, Outcome], *, best: bool) -> dict[str, float]:
        """Return the parent's metrics after the end of a trial; ``best`` if the best changed."""
        counts = Counter(outcomes.values())
        counts.pop(Outcome.INTERRUPTED, None)
        changed = self._changed({f"trials/{it.value}": float(n) for it, n in counts.items()})
        if best and self.best is not None and self._objective is not None:
            changed[mlflow_key(f"best/{self._objective.metric}")] = self.best.value
        changed[NUM_ENDED_METRIC] = float(counts.total())  # last: a step with it is complete
        return changed

    def final_metrics(self, outcomes: Mapping[str, Outcome], *, every: bool) -> dict[str, float]:
        """Return the counts that changed since the last metrics, or all with ``every``."""
        counts = Counter(outcomes.values())
        kinds = list(Outcome) if every else list(counts)
        final = {f"trials/{each.value}": float(counts[each]) for each in kinds}
        # After a resume, an earlier count may have been skipped because MLflow had its step.
        return final if every else self._changed(final)

    def _changed(self, metrics: Mapping[str, float]) -> dict[str, float]:
        changed = {
            name: value for name, value in metrics.items() if self._last_metrics.get(name) != value
        }
        self._last_metrics.update(changed)
        return changed

    def _find_best(self) -> BestTrial | None:
        best = best_of(self._candidates.values(), self._objective) if self._objective else None
        if best is None:
            return None
        name, config = self._configs.get(best.key, (best.key, None))
        return BestTrial(best.key, name, float(best.value), config)
