"""A searcher that is not asked while no trial may start."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from ray.tune.search import Searcher

from tune_tf.tune_internals import controller


class Gate(Protocol):
    """Says whether a trial may start."""

    def may_start(self) -> bool:
        """Return whether a new trial may start now."""

    @property
    def interrupted(self) -> bool:
        """Whether the sweep is about to end, so that nothing is gained by waiting."""


class GatedSearcher(Searcher):
    """Asks another searcher for the next trial only while the gate is open.

    Trials that have begun are not held up. Where all of them are over, Tune does nothing but wait
    for the next one, for minutes, and heeds neither Ctrl-C nor a budget of time meanwhile. So once
    the sweep is to end it is given a trial, which it ends at once without running it.

    Args:
        searcher: The other searcher.
        gate: Whether a trial may start.
    """

    def __init__(self, searcher: Searcher, gate: Gate) -> None:
        super().__init__(metric=searcher.metric, mode=searcher.mode)
        self.searcher = searcher
        self._gate = gate

    @property
    def holds_back(self) -> bool:
        """Whether no trial may start now."""
        return not self._gate.may_start()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the other's proposal; None while the gate is shut."""
        if self.holds_back and not (
            controller.all_over() and (self._gate.interrupted or controller.is_out_of_time())
        ):
            return None
        return self.searcher.suggest(trial_id)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Hand on what ``tune.run`` was called with."""
        return bool(self.searcher.set_search_properties(metric, mode, config, **spec))

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Hand on the limit of concurrent trials."""
        return bool(self.searcher.set_max_concurrency(max_concurrent))

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Hand on a result."""
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Hand on how a trial ended."""
        self.searcher.on_trial_complete(trial_id, result=result, error=error)

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Save the other."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Restore the other."""
        self.searcher.restore(checkpoint_path)

    def get_state(self) -> dict[str, Any]:
        """Return nothing: whether trials may start is seen anew."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up nothing."""
