"""What a sweep's own run shows: how the sweep stands, what it found, what it searched."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ray.tune.experiment import Trial

from tune_tf.objective import Objective
from tune_tf.outcome import Outcome
from tune_tf.tracking import descriptions, run_outcome
from tune_tf.tracking.names import MAX_TAG_LENGTH, cut, key_of, mlflow_params
from tune_tf.tracking.progress_summary import BEST_TRIAL, ProgressSummary
from tune_tf.tracking.run_writer import now_ms
from tune_tf.tracking.tags import SweepDetails
from tune_tf.tracking.writing.run_update import Report
from tune_tf.tune_internals.trial_ends import asks_for_more

_BEST_CHECKPOINT = "tune_tf.best_checkpoint"


class ParentRun:
    """Makes what is put to the parent run at the start, after each trial, and at the end.

    Each method returns the fields of an :class:`~tune_tf.tracking.writing.run_update.RunUpdate`.

    Args:
        standing: Its best trial and its counts.
        details: What the sweep knows of itself.
        objective: What is optimised; None if that is not known.
    """

    def __init__(
        self, standing: ProgressSummary, details: SweepDetails, objective: Objective | None
    ) -> None:
        self._standing = standing
        self._details = details
        self._objective = objective

    def at_start(self, outcomes: Mapping[str, Outcome], num_results: int) -> dict[str, Any]:
        """Return what is known before any trial runs, or goes on.

        Args:
            outcomes: How trials ended, by id.
            num_results: How many results were reported.
        """
        return {
            "tags": {descriptions.NOTE: self._note("RUNNING", outcomes.values(), num_results)},
            "texts": self._details.artifacts(),
        }

    def after_a_trial(
        self, outcomes: Mapping[str, Outcome], num_results: int, *, new_best: bool
    ) -> dict[str, Any]:
        """Return what one more trial's end has changed; arguments as above.

        Args:
            outcomes: How trials ended, by id.
            num_results: How many results were reported.
            new_best: Whether the best trial changed.
        """
        metrics = self._standing.live(outcomes, best=new_best)
        best = self._standing.tags() if new_best else {}
        return {
            "tags": {
                descriptions.NOTE: self._note("RUNNING", outcomes.values(), num_results),
                **best,
            },
            "reports": [Report(self._standing.num_ended(outcomes), now_ms(), metrics)],
        }

    def at_end(
        self,
        trials: Sequence[Trial],
        outcomes: Mapping[str, Outcome],
        num_results: int,
        *,
        resumed: bool,
    ) -> dict[str, Any]:
        """Return how the sweep ended.

        Args:
            trials: All trials that Tune knows.
            outcomes: How they ended, by id.
            num_results: How many results were reported.
            resumed: Whether the sweep was interrupted before.
        """
        time_ms = now_ms()
        ended = [outcomes[t.trial_id] for t in trials if t.trial_id in outcomes]
        interrupted = not trials or len(ended) < len(trials) or asks_for_more()
        status = run_outcome.outcome_of_sweep(ended, interrupted=interrupted)
        params: dict[str, str] = {}
        tags = self._standing.tags()
        best = next((t for t in trials if t.trial_id == tags.get(BEST_TRIAL)), None)
        if best is not None:
            if best.checkpoint is not None:
                tags[_BEST_CHECKPOINT] = cut(best.checkpoint.path, MAX_TAG_LENGTH)
            if status != "KILLED":  # a resumed sweep may find a better one
                params = {key_of(f"best_{k}"): v for k, v in mlflow_params(best.config).items()}
        metrics = self._standing.final(outcomes, every=resumed)
        step = self._standing.num_ended(outcomes)
        return {
            "params": params,
            "tags": {**tags, descriptions.NOTE: self._note(status, ended, num_results)},
            "reports": [Report(step, time_ms, metrics, once=False)] if metrics else [],
            "status": status,
            "end_ms": time_ms,
            "trials": frozenset(trial.trial_id for trial in trials),
        }

    def _note(self, status: str, outcomes: Iterable[Outcome], num_results: int) -> str:
        space = self._details.space
        return descriptions.sweep_description(
            status,
            outcomes,
            num_results,
            objective=self._objective,
            best=self._standing.best,
            space=space.to_dict() if space is not None else None,
            resume_with=self._details.resume_with,
        )
