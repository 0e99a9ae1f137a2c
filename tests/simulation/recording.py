"""Searchers and schedulers that note how they are called, by Tune or by its simulation."""

from typing import Any

from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

LOSS = "val_loss"
CALLS = ("on_trial_add", "on_trial_result", "on_trial_complete", "on_trial_remove")


class Log:
    """Calls in their order, with trials numbered in the order in which they were proposed."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._numbers: dict[str, int] = {}

    def add(self, name: str, trial_id: str, result: Any = None, *more: Any) -> None:
        number = self._numbers.setdefault(trial_id, len(self._numbers))
        keys = ("training_iteration", LOSS, "done")
        seen = None if result is None else tuple(result.get(key) for key in keys)
        self.calls.append((name, number, seen, *more))


class ScriptedSearcher(Searcher):
    """Proposes ``{"x": 0}``, ``{"x": 1}``, and so on."""

    def __init__(self, log: Log) -> None:
        super().__init__(metric=LOSS, mode="min")
        self._log = log
        self._count = 0

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self._log.add("suggest", trial_id)
        self._count += 1
        return {"x": self._count - 1}

    def on_trial_result(self, trial_id: str, result: Any) -> None:
        self._log.add("searcher.on_trial_result", trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self._log.add("searcher.on_trial_complete", trial_id, result, error)

    def save(self, checkpoint_path: str) -> None:
        """Nothing is kept."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing is kept."""


def recorded(scheduler: TrialScheduler, log: Log) -> TrialScheduler:
    """Return a scheduler that notes its calls, and the decisions that it returns."""
    for name in CALLS:
        setattr(scheduler, name, _noting(scheduler, name, log))
    return scheduler


def _noting(scheduler: TrialScheduler, name: str, log: Log) -> Any:
    original = getattr(scheduler, name)

    def call(controller: Any, trial: Any, *result: Any) -> Any:
        before = (name, trial.trial_id, *(dict(each) for each in result))
        log.add(*before)
        decision = original(controller, trial, *result)
        if decision is not None:
            log.add("decision", trial.trial_id, None, decision)
        return decision

    return call
