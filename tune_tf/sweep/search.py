"""How Tune asks a sweep's searcher for trials, and what the searcher is told at the end."""

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
    """Asks a searcher for as many trials as the budget holds, also after it has been extended.

    Tune's own goes on with the number of trials that a sweep was begun with, and asks for none
    once a sweep has ended.

    Args:
        searcher: Who proposes configs.
        budget: How many trials there are to be.
        max_concurrent_trials: Trials at a time.
    """

    def __init__(
        self, searcher: Searcher, budget: BudgetSettings, max_concurrent_trials: int
    ) -> None:
        super().__init__(ConcurrencyLimiter(searcher, max_concurrent=max_concurrent_trials))
        self._budget = budget

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep needs."""
        return {**super().get_state(), "budget": self._budget.model_dump()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up a sweep that was interrupted or has ended; go on if its budget is another."""
        changed = state["budget"] != self._budget.model_dump()
        super().set_state(
            {
                **state,
                "total_samples": self._budget.num_samples,
                "finished": state["finished"] and not changed,
            }
        )


class StudyEnd(Callback):
    """Tells the study at the end of a sweep what it does not have yet; a Tune callback.

    Tune must call it after the one that knows the runs' ids, which are all there only then. It is
    called in the middle of Tune's own code, as the searcher has to be that asks which trials Tune
    knows: where a resume has nothing left to run, this is the only time that it is asked.

    Args:
        searcher: Who has the study.
        endings: Knows how the trials ended.
        tracker: Knows MLflow's ids of the runs; None where nothing is tracked.
    """

    def __init__(
        self, searcher: OptunaSearcher, endings: OutcomeTracker, tracker: MLflowCallback | None
    ) -> None:
        self._searcher = searcher
        self._endings = endings
        self._tracker = tracker

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Tell how trials ended, and which runs are theirs."""
        run_ids = self._tracker.run_ids() if self._tracker else {}
        last = {
            trial.trial_id: {
                **flatten_dict(latest_result(trial)),
                MLFLOW_RUN_ID: run_ids.get(trial.trial_id),
            }
            for trial in trials
        }
        self._searcher.finish(self._endings.outcomes, last)
