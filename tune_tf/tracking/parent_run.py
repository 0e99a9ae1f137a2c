"""The sweep's parent run: progress, best trial, search space."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ray.tune.experiment import Trial

from tune_tf.constraint import Constraint, is_feasible
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.ranking import Candidate, best_of
from tune_tf.tracking.descriptions import BestTrial, SweepDetails
from tune_tf.tracking.names import (
    MAX_TAG_LENGTH,
    NUM_ENDED_METRIC,
    mlflow_key,
    mlflow_params,
    truncate,
)
from tune_tf.tracking.writing.run_update import PARENT, Report, RunUpdate, now_ms
from tune_tf.tune_internals.controller import asks_for_more
from tune_tf.tune_internals.trial_state import trial_number

_FAILURES = frozenset({Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR})


class ParentRun:
    """Progress of a running sweep, as updates of its parent run.

    Outcomes are those of the ended trials, by Tune's id. The best trial has the best value of the
    objective and meets the constraints; without an objective, there is none. ``state`` is that
    before an interruption, empty for a new sweep.
    """

    def __init__(
        self,
        objective: Objective | None,
        constraints: Sequence[Constraint],
        details: SweepDetails,
        state: Mapping[str, Any],
    ) -> None:
        self._objective = objective
        self._constraints = tuple(constraints)
        self._details = details
        self._resumed = bool(state)
        self._candidates: dict[str, Candidate[str]] = {
            key: Candidate(key, Outcome(tag), value, feasible)
            for key, tag, value, feasible in state.get("candidates", ())
        }
        self._last_metrics: dict[str, float] = {}
        self.best: BestTrial | None = state.get("best")

    def state(self) -> dict[str, Any]:
        """Return a copy of the state, for a resumed sweep."""
        candidates = [
            (each.key, each.outcome.value, each.value, each.feasible)
            for each in self._candidates.values()
            if each.outcome is not None
        ]
        return {"candidates": candidates, "best": self.best}

    def is_feasible(self, result: Mapping[str, Any]) -> bool | None:
        """Return whether a result meets the constraints; None without constraints."""
        return is_feasible(self._constraints, result) if self._constraints else None

    def record_end(
        self,
        trial_id: str,
        config: Mapping[str, Any],
        outcome: Outcome,
        result: Mapping[str, Any],
    ) -> bool:
        """Record the outcome and the last, flat result of a trial that will not continue.

        Returns:
            Whether the best trial changed.
        """
        value = result.get(self._objective.metric) if self._objective else None
        if self._objective is None or not is_finite(value):
            return False
        feasible = self.is_feasible(result) is not False
        number = float(value)  # type: ignore[arg-type]
        before, ended_again = self.best, trial_id in self._candidates
        new = self._candidates[trial_id] = Candidate(trial_id, outcome, number, feasible)
        best = best_of(
            self._candidates.values()
            if ended_again
            else [*([self._candidates[before.trial_id]] if before else []), new],
            self._objective,
        )
        if best is None:
            self.best = None
        elif best.key == trial_id:
            self.best = BestTrial(trial_id, number, config)
        elif before is None or best.key != before.trial_id:
            self.best = BestTrial(best.key, float(best.value))
        return self.best is not None and (
            before is None
            or (before.trial_id, before.value) != (self.best.trial_id, self.best.value)
        )

    def start_update(self, name: str | None) -> RunUpdate:
        """Return the update before any trial runs."""
        return RunUpdate(PARENT, name=name, texts=self._details.artifacts(), reopen=True)

    def trial_update(self, outcomes: Mapping[str, Outcome], *, new_best: bool) -> RunUpdate:
        """Return the update after the end of a trial."""
        counts = Counter(outcomes.values())
        metrics = self.live_metrics(counts, best=new_best)
        tags = self.best_tags() if new_best else {}
        report = Report(_num_ended(counts), now_ms(), metrics)
        return RunUpdate(PARENT, tags=tags, reports=[report])

    def end_update(self, trials: Sequence[Trial], outcomes: Mapping[str, Outcome]) -> RunUpdate:
        """Return the update at the end of the sweep."""
        self._settle_ties(trials)
        time_ms = now_ms()
        ended = [outcomes[t.trial_id] for t in trials if t.trial_id in outcomes]
        interrupted = not trials or len(ended) < len(trials) or asks_for_more()
        status = sweep_status(ended, interrupted=interrupted)
        params: dict[str, str] = {}
        tags = self.best_tags()
        best = next((t for t in trials if self.best and t.trial_id == self.best.trial_id), None)
        if best is not None:
            if best.checkpoint is not None:
                path = truncate(best.checkpoint.path, MAX_TAG_LENGTH)
                tags["tune_tf.best_checkpoint"] = path
            if status != "KILLED":  # a resumed sweep may find a better one
                params = {mlflow_key(f"best_{k}"): v for k, v in mlflow_params(best.config).items()}
        counts = Counter(outcomes.values())
        metrics = self.final_metrics(counts)
        step = _num_ended(counts)
        return RunUpdate(
            PARENT,
            params=params,
            tags=tags,
            reports=[Report(step, time_ms, metrics, once=False)] if metrics else [],
            status=status,
            end_ms=time_ms,
            trials=frozenset(trial.trial_id for trial in trials),
        )

    def _settle_ties(self, trials: Sequence[Trial]) -> None:
        """Let the first of several best trials be the best, rather than the first that ended."""
        numbered = {trial.trial_id: trial for trial in sorted(trials, key=trial_number)}
        candidates = [self._candidates[key] for key in numbered if key in self._candidates]
        best = best_of(candidates, self._objective) if self._objective else None
        if best is not None and self.best is not None and best.key != self.best.trial_id:
            trial = numbered[best.key]
            self.best = BestTrial(best.key, float(best.value), trial.config)

    def best_tags(self) -> dict[str, str]:
        """Return the tags about the best trial."""
        if self.best is None:
            return {}
        tags = {"tune_tf.best_trial_id": self.best.trial_id}
        if self.best.config is not None:
            config = json.dumps(self.best.config, default=str)
            tags["tune_tf.best_config"] = truncate(config, MAX_TAG_LENGTH)
        return tags

    def live_metrics(self, counts: Counter[Outcome], *, best: bool) -> dict[str, float]:
        """Return the changed metrics after the end of a trial; ``best`` if the best changed."""
        ended = {it: n for it, n in counts.items() if it is not Outcome.INTERRUPTED}
        changed = self._changed({f"trials/{it.value}": float(n) for it, n in ended.items()})
        if best:
            changed |= self._best_metrics("best/", "")
        changed[NUM_ENDED_METRIC] = float(_num_ended(counts))  # last: a step with it is complete
        return changed

    def final_metrics(self, counts: Counter[Outcome]) -> dict[str, float]:
        """Return the counts that changed since the last metrics, or all after a resume."""
        kinds = list(Outcome) if self._resumed else list(counts)
        final = {f"trials/{each.value}": float(counts[each]) for each in kinds}
        # After a resume, an earlier value may have been skipped because MLflow had its step.
        return final | self._best_metrics("") if self._resumed else self._changed(final)

    def _best_metrics(self, *prefixes: str) -> dict[str, float]:
        """Return the best value; without a prefix, it has the name of the trials' own metric.

        MLflow's table of runs then shows it in the column of the trials' values.
        """
        if self.best is None or self._objective is None:
            return {}
        return {mlflow_key(f"{each}{self._objective.metric}"): self.best.value for each in prefixes}

    def _changed(self, metrics: Mapping[str, float]) -> dict[str, float]:
        changed = {
            name: value for name, value in metrics.items() if self._last_metrics.get(name) != value
        }
        self._last_metrics.update(changed)
        return changed


def _num_ended(counts: Counter[Outcome]) -> int:
    """Return the number of finally ended trials, the step of the parent's reports."""
    return counts.total() - counts[Outcome.INTERRUPTED]


def sweep_status(outcomes: Collection[Outcome], *, interrupted: bool) -> str:
    """Return the parent run's MLflow status; ``interrupted`` if some trials have not ended."""
    if interrupted or Outcome.INTERRUPTED in outcomes:
        return "KILLED"
    return "FAILED" if outcomes and _FAILURES.issuperset(outcomes) else "FINISHED"
