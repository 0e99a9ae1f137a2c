"""What the sweep's own run in MLflow shows: how many trials have ended, and the best of them."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tune_tf.constraint import is_feasible
from tune_tf.outcome import Outcome
from tune_tf.ranking import Candidate, best_of
from tune_tf.record import RecordedTrial
from tune_tf.tracking.names import (
    COUNTS,
    MAX_TAG_LENGTH,
    NUM_ENDED_METRIC,
    mlflow_key,
    mlflow_params,
    truncate,
)
from tune_tf.tracking.run_content import Point, end_result, milliseconds
from tune_tf.tracking.tags import BEST_CONFIG_TAG, BEST_TRIAL_TAG
from tune_tf.tracking.tracked_sweep import TrackedSweep

_FAILURES = frozenset({Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR})


class SweepProgress:
    """Progress of a sweep: it follows from the ended trials, in the order of their ends.

    Attributes:
        points: A point for each of them.
        best: The best trial by the objective that meets the constraints; of equally good ones the
            first. None without any, or without an objective.
    """

    def __init__(self, sweep: TrackedSweep) -> None:
        self._sweep = sweep
        self._counts: Counter[Outcome] = Counter()
        self._seen: set[str] = set()
        self._candidate: Candidate[tuple[int, str]] | None = None
        self.points: list[Point] = []
        self.best: RecordedTrial | None = None

    @property
    def outcomes(self) -> Collection[Outcome]:
        """The different outcomes of the ended trials."""
        return self._counts.keys()

    def add(self, trials: Iterable[RecordedTrial]) -> None:
        """Add those of the trials that have ended for good and are not known yet."""
        ended = [
            trial for trial in trials if not trial.goes_on and trial.trial_id not in self._seen
        ]
        for trial in sorted(ended, key=lambda each: (each.ended_s, each.number)):
            if trial.outcome is not None:
                self._seen.add(trial.trial_id)
                self._add(trial, trial.outcome)

    def _add(self, trial: RecordedTrial, outcome: Outcome) -> None:
        self._counts[outcome] += 1
        changed = {_count_metric(outcome): float(self._counts[outcome])}
        if self._is_best(trial):
            self.best = trial
            changed |= self._best_metrics()
        changed[NUM_ENDED_METRIC] = float(len(self.points) + 1)  # last: a step with it is complete
        time_ms = milliseconds(trial.ended_s or 0.0)
        self.points.append(Point(len(self.points) + 1, time_ms, changed))

    def _is_best(self, trial: RecordedTrial) -> bool:
        """Return whether a trial is better than the best one before it."""
        objective = self._sweep.objective
        if objective is None:
            return False
        result = end_result(trial)
        value = result.get(objective.metric)
        feasible = is_feasible(self._sweep.constraints, result)
        new = Candidate((trial.number, trial.trial_id), trial.outcome, value, feasible)
        both = [each for each in (self._candidate, new) if each is not None]
        best = best_of(sorted(both, key=lambda each: each.key), objective)
        is_new = best is new
        self._candidate = best
        return is_new

    def _best_metrics(self) -> dict[str, float]:
        """Return the best value, also by the name of the trials' own metric.

        MLflow's table of runs then shows it in the column of the trials' values.
        """
        if self._candidate is None or self._sweep.objective is None:
            return {}
        name, value = self._sweep.objective.metric, float(self._candidate.value)
        return {mlflow_key(f"{prefix}{name}"): value for prefix in ("best/", "")}

    def best_tags(self) -> dict[str, str]:
        """Return the tags about the best trial."""
        if self.best is None:
            return {}
        config = json.dumps(self.best.config, default=str)
        return {
            BEST_TRIAL_TAG: self.best.trial_id,
            BEST_CONFIG_TAG: truncate(config, MAX_TAG_LENGTH),
        }

    def best_params(self) -> dict[str, str]:
        """Return the config of the best trial, as parameters of the sweep's own run."""
        config: Mapping[str, Any] = self.best.config if self.best else {}
        return {mlflow_key(f"best_{name}"): text for name, text in mlflow_params(config).items()}


def sweep_status(outcomes: Collection[Outcome], *, interrupted: bool) -> str:
    """Return MLflow's status of a sweep that has ended, or was interrupted."""
    if interrupted:
        return "KILLED"
    return "FAILED" if outcomes and _FAILURES.issuperset(outcomes) else "FINISHED"


def _count_metric(outcome: Outcome) -> str:
    return f"{COUNTS}{outcome.value}"
