"""Searcher that pauses suggestions while no trial may start."""

from collections.abc import Callable, Mapping
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


def _forwarding(name: str) -> Callable[..., Any]:
    def forward(self: "GatedSearcher", *args: Any, **kwargs: Any) -> Any:
        return getattr(self.searcher, name)(*args, **kwargs)

    return forward


class GatedSearcher(Searcher):
    """Searcher that asks another one for trials only while a gate is open.

    Running trials are not affected. Once all are finished, Tune waits minutes for the next
    suggestion and reacts neither to Ctrl-C nor to its time budget. So when the sweep is to end it
    gets a trial, which it stops without running it.

    Args:
        searcher: The wrapped searcher.
        gate: Decides whether a trial may start.
    """

    set_search_properties = _forwarding("set_search_properties")
    set_max_concurrency = _forwarding("set_max_concurrency")
    on_trial_result = _forwarding("on_trial_result")
    on_trial_complete = _forwarding("on_trial_complete")
    save = _forwarding("save")
    restore = _forwarding("restore")

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
            and (self._gate.interrupted or controller.is_stopping_experiment())
        ):
            return None
        return self.searcher.suggest(trial_id)

    def get_state(self) -> dict[str, Any]:
        """Return an empty state: the gate is asked anew."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Ignore the state."""
