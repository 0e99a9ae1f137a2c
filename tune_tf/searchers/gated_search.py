"""Searcher that pauses suggestions while no trial may start."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from ray.tune.search import Searcher

from tune_tf.tune_internals import controller


class Gate(Protocol):
    """Interface that decides whether a new trial may start."""

    def may_start(self) -> bool:
        """Return whether a new trial may start now."""

    @property
    def interrupted(self) -> bool:
        """Whether the sweep is about to end, so that waiting is pointless."""


class GatedSearcher(Searcher):
    """Searcher that asks another one for trials only while a gate is open.

    Running trials are not affected. Once all are finished, Tune waits minutes for the next
    suggestion and reacts neither to Ctrl-C nor to its time budget. So when the sweep is to end it
    gets a trial, which it stops without running it.

    Args:
        searcher: The wrapped searcher.
        gate: Decides whether a trial may start.
    """

    def __init__(self, searcher: Searcher, gate: Gate) -> None:
        super().__init__(metric=searcher.metric, mode=searcher.mode)
        self.searcher = searcher
        self._gate = gate

    @property
    def is_closed(self) -> bool:
        """Whether no trial may start now."""
        return not self._gate.may_start()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the wrapped searcher's suggestion; None while the gate is closed."""
        if self.is_closed and not (
            controller.all_trials_finished()
            and (self._gate.interrupted or controller.is_out_of_time())
        ):
            return None
        return self.searcher.suggest(trial_id)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Forward the arguments of ``tune.run``."""
        return bool(self.searcher.set_search_properties(metric, mode, config, **spec))

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Forward the limit of concurrent trials."""
        return bool(self.searcher.set_max_concurrency(max_concurrent))

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Forward a result."""
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Forward the end of a trial."""
        self.searcher.on_trial_complete(trial_id, result=result, error=error)

    def save(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Save the wrapped searcher."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str | os.PathLike[str]) -> None:
        """Restore the wrapped searcher."""
        self.searcher.restore(checkpoint_path)

    def get_state(self) -> dict[str, Any]:
        """Return an empty state: the gate is asked anew."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Ignore the state."""
