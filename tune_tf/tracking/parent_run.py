"""Updates of the sweep's parent run: progress, best trial, search space."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ray.tune.experiment import Trial

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.tracking.descriptions import DESCRIPTION_TAG, sweep_description
from tune_tf.tracking.names import MAX_TAG_LENGTH, mlflow_key, mlflow_params, truncate
from tune_tf.tracking.progress_summary import BEST_TRIAL_TAG, ProgressSummary
from tune_tf.tracking.run_writer import now_ms
from tune_tf.tracking.tags import SweepDetails
from tune_tf.tracking.writing.run_update import Report
from tune_tf.tune_internals.controller import asks_for_more

_BEST_CHECKPOINT = "tune_tf.best_checkpoint"
_FAILURES = frozenset({Outcome.DIVERGED, Outcome.OOM, Outcome.ERROR})


class ParentRun:
    """Builder of the parent run's updates at the start, after each trial, and at the end.

    The methods take the outcomes of the ended trials by id and the number of reported results, and
    return fields of a :class:`~tune_tf.tracking.writing.run_update.RunUpdate`.

    Args:
        summary: Best trial and counts.
        details: Details of the sweep.
        objective: Objective of the sweep; None if unknown.
    """

    def __init__(
        self, summary: ProgressSummary, details: SweepDetails, objective: Objective | None
    ) -> None:
        self._summary = summary
        self._details = details
        self._objective = objective

    def start_update(self, outcomes: Mapping[str, Outcome], num_results: int) -> dict[str, Any]:
        """Return the update before any trial runs."""
        return {
            "tags": {DESCRIPTION_TAG: self._description("RUNNING", outcomes.values(), num_results)},
            "texts": self._details.artifacts(),
        }

    def trial_update(
        self, outcomes: Mapping[str, Outcome], num_results: int, *, new_best: bool
    ) -> dict[str, Any]:
        """Return the update after the end of a trial."""
        metrics = self._summary.live_metrics(outcomes, best=new_best)
        best = self._summary.tags() if new_best else {}
        return {
            "tags": {
                DESCRIPTION_TAG: self._description("RUNNING", outcomes.values(), num_results),
                **best,
            },
            "reports": [Report(self._summary.num_ended(outcomes), now_ms(), metrics)],
        }

    def end_update(
        self,
        trials: Sequence[Trial],
        outcomes: Mapping[str, Outcome],
        num_results: int,
        *,
        resumed: bool,
    ) -> dict[str, Any]:
        """Return the update at the end of the sweep."""
        time_ms = now_ms()
        ended = [outcomes[t.trial_id] for t in trials if t.trial_id in outcomes]
        interrupted = not trials or len(ended) < len(trials) or asks_for_more()
        status = sweep_status(ended, interrupted=interrupted)
        params: dict[str, str] = {}
        tags = self._summary.tags()
        best = next((t for t in trials if t.trial_id == tags.get(BEST_TRIAL_TAG)), None)
        if best is not None:
            if best.checkpoint is not None:
                tags[_BEST_CHECKPOINT] = truncate(best.checkpoint.path, MAX_TAG_LENGTH)
            if status != "KILLED":  # a resumed sweep may find a better one
                params = {mlflow_key(f"best_{k}"): v for k, v in mlflow_params(best.config).items()}
        metrics = self._summary.final_metrics(outcomes, every=resumed)
        step = self._summary.num_ended(outcomes)
        return {
            "params": params,
            "tags": {
                **tags,
                DESCRIPTION_TAG: self._description(status, ended, num_results),
            },
            "reports": [Report(step, time_ms, metrics, once=False)] if metrics else [],
            "status": status,
            "end_ms": time_ms,
            "trials": frozenset(trial.trial_id for trial in trials),
        }

    def _description(self, status: str, outcomes: Iterable[Outcome], num_results: int) -> str:
        space = self._details.space
        return sweep_description(
            status,
            outcomes,
            num_results,
            objective=self._objective,
            best=self._summary.best,
            space=space.to_dict() if space is not None else None,
            resume_with=self._details.resume_with,
        )


def sweep_status(outcomes: Collection[Outcome], *, interrupted: bool) -> str:
    """Return the parent run's MLflow status; ``interrupted`` if some trials have not ended."""
    if interrupted or Outcome.INTERRUPTED in outcomes:
        return "KILLED"
    return "FAILED" if outcomes and _FAILURES.issuperset(outcomes) else "FINISHED"
