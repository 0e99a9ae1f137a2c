"""Search algorithm of a sweep, and the completion of its study."""

from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.search import ConcurrencyLimiter, Searcher, SearchGenerator
from ray.tune.utils import flatten_dict

from tune_tf.config import BudgetSettings
from tune_tf.outcome import MLFLOW_RUN_ID
from tune_tf.searchers import OptunaSearcher
from tune_tf.tracking import MLflowCallback, OutcomeTracker
from tune_tf.tracking.outcome_tracker import latest_result


class SweepSearch(SearchGenerator):
    """Search generator that follows an extended budget.

    Tune's own restores the original number of trials, and proposes none after the end of a sweep.
    """

    def __init__(
        self, searcher: Searcher, budget: BudgetSettings, max_concurrent_trials: int
    ) -> None:
        super().__init__(ConcurrencyLimiter(searcher, max_concurrent=max_concurrent_trials))
        self._budget = budget

    def get_state(self) -> dict[str, Any]:
        """Return the state for a resume."""
        return {**super().get_state(), "budget": self._budget.model_dump()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the search; a finished one continues if the budget has changed."""
        changed = state["budget"] != self._budget.model_dump()
        super().set_state(
            {
                **state,
                "total_samples": self._budget.num_samples,
                "finished": state["finished"] and not changed,
            }
        )


class StudyFinalizer(Callback):
    """Tune callback that reports missing outcomes and run ids to the study at the end.

    Tune must call it after the tracker, which has all run ids only then. It must run inside
    ``tune.run``, where the searcher can ask Tune for the trials even if a resume runs none.
    """

    def __init__(
        self,
        searcher: OptunaSearcher,
        outcome_tracker: OutcomeTracker,
        tracker: MLflowCallback | None,
    ) -> None:
        self._searcher = searcher
        self._outcome_tracker = outcome_tracker
        self._tracker = tracker

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Report outcomes and run ids."""
        run_ids = self._tracker.run_ids() if self._tracker else {}
        last = {
            trial.trial_id: {
                **flatten_dict(latest_result(trial)),
                MLFLOW_RUN_ID: run_ids.get(trial.trial_id),
            }
            for trial in trials
        }
        self._searcher.finish(self._outcome_tracker.outcomes, last)
