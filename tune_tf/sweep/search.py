"""How Tune asks a sweep's searcher for trials."""

from typing import Any

from ray.tune.search import ConcurrencyLimiter, Searcher, SearchGenerator

from tune_tf.config import BudgetSettings


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
