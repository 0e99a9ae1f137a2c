"""How a sweep stands while it runs: its best trial, and how many have ended in which way."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.ranking import Candidate, best_of
from tune_tf.tracking.names import ENDED, MAX_TAG_LENGTH, cut, key_of

BEST_TRIAL = "tune_tf.best_trial_id"
BEST_CONFIG = "tune_tf.best_config"


@dataclass(frozen=True)
class BestTrial:
    """The best trial so far, as people are told of it.

    Args:
        trial_id: Tune's id.
        name: Its name.
        value: The objective's metric.
        config: Its config; None if it is not known any more.
    """

    trial_id: str
    name: str
    value: float
    config: Mapping[str, Any] | None = None


class ProgressSummary:
    """Keeps the best trial and the counts of a running sweep.

    Args:
        objective: Tells the best trial; None if none is to be told.
        constraints: What a trial must keep to be the best one.
        state: What :meth:`state` returned before an interruption.
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
        self._peaks: dict[str, tuple[float, int]] = dict(state.get("peaks", {}))
        self._shown: dict[str, float] = {}
        self.best: BestTrial | None = self._find()

    def state(self) -> dict[str, Any]:
        """Return what a resumed sweep needs, as plain data of its own."""
        candidates = [
            (each.key, each.outcome.value, each.value, each.feasible)
            for each in self._candidates.values()
            if each.outcome is not None
        ]
        best = self.best and self.best.trial_id
        configs = {best: self._configs[best]} if best in self._configs else {}
        return {"candidates": candidates, "configs": configs, "peaks": dict(self._peaks)}

    def reported(self, trial_id: str, step: int, metrics: Mapping[str, float]) -> None:
        """Take note of a report of a running trial."""
        objective = self._objective
        if objective is None or not is_finite(value := metrics.get(key_of(objective.metric))):
            return
        known = self._peaks.get(trial_id)
        better = known is None or (
            value > known[0] if objective.mode == "max" else value < known[0]  # type: ignore[operator]
        )
        if better:
            self._peaks[trial_id] = value, step  # type: ignore[assignment]

    def peak(self, trial_id: str) -> tuple[float, int] | None:
        """Return the best value that a running trial reported, and its step."""
        return self._peaks.get(trial_id)

    def tags(self) -> dict[str, str]:
        """Return the parent's tags that tell the best trial."""
        if self.best is None:
            return {}
        tags = {BEST_TRIAL: self.best.trial_id}
        if self.best.config is not None:
            tags[BEST_CONFIG] = cut(json.dumps(self.best.config, default=str), MAX_TAG_LENGTH)
        return tags

    def feasible(self, result: Mapping[str, Any]) -> bool | None:
        """Return whether a result keeps the constraints; None if there are none."""
        return is_feasible(self._constraints, result) if self._constraints else None

    def ended(
        self,
        trial_id: str,
        name: str,
        config: Mapping[str, Any],
        outcome: Outcome,
        result: Mapping[str, Any],
    ) -> bool:
        """Take note of the end of a trial, and of its last result.

        Args:
            trial_id: Tune's id.
            name: Its name.
            config: Its config.
            outcome: How it ended; not that it was interrupted.
            result: Its last result, flat.

        Returns:
            Whether the best one changed.
        """
        self._peaks.pop(trial_id, None)
        if self._objective is None:
            return False
        value = result.get(self._objective.metric)
        if not is_finite(value):
            return False
        feasible = self.feasible(result) is not False
        number = float(value)  # type: ignore[arg-type]
        self._candidates[trial_id] = Candidate(trial_id, outcome, number, feasible)
        self._configs[trial_id] = name, config
        before, self.best = self.best, self._find()
        for other in self._configs.keys() - {self.best and self.best.trial_id}:
            del self._configs[other]
        return self.best is not None and (
            before is None
            or (before.trial_id, before.value) != (self.best.trial_id, self.best.value)
        )

    @staticmethod
    def num_ended(outcomes: Mapping[str, Outcome]) -> int:
        """Return how many trials have ended for good, which the parent's reports count by."""
        return sum(outcome is not Outcome.INTERRUPTED for outcome in outcomes.values())

    def live(self, outcomes: Mapping[str, Outcome], *, best: bool) -> dict[str, float]:
        """Return the parent's metrics after one more trial has ended.

        Args:
            outcomes: How trials ended, by id.
            best: Whether the best trial changed.
        """
        counts = Counter(outcomes.values())
        counts.pop(Outcome.INTERRUPTED, None)
        changed = self._changed({f"trials/{it.value}": float(n) for it, n in counts.items()})
        if best and self.best is not None and self._objective is not None:
            changed[key_of(f"best/{self._objective.metric}")] = self.best.value
        changed[ENDED] = float(counts.total())  # last: a step that has it has all
        return changed

    def final(self, outcomes: Mapping[str, Outcome], *, every: bool) -> dict[str, float]:
        """Return the counts that were not shown yet, after a resume all.

        Args:
            outcomes: How trials ended, by id.
            every: Whether also those that are 0 are news, as after a resume.
        """
        counts = Counter(outcomes.values())
        shown = list(Outcome) if every else list(counts)
        final = {f"trials/{each.value}": float(counts[each]) for each in shown}
        # After a resume MLflow may have had the step at which one was shown, and left it out.
        return final if every else self._changed(final)

    def _changed(self, metrics: Mapping[str, float]) -> dict[str, float]:
        changed = {name: value for name, value in metrics.items() if self._shown.get(name) != value}
        self._shown.update(changed)
        return changed

    def _find(self) -> BestTrial | None:
        best = best_of(self._candidates.values(), self._objective) if self._objective else None
        if best is None:
            return None
        name, config = self._configs.get(best.key, (best.key, None))
        return BestTrial(best.key, name, float(best.value), config)
