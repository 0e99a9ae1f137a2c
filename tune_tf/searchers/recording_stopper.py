"""Tune stopper that records which trials it has stopped."""

from typing import Any

from ray.tune.stopper import Stopper


class RecordingStopper(Stopper):
    """Stopper of a user's that records which trials it has stopped.

    Tune asks the stopper first and the scheduler only if that says no, and tells nobody who said
    yes. In Tune's state the user's own stopper is kept, not this one.

    Args:
        stopper: The user's.

    Attributes:
        trial_ids: The trials that it has stopped.
    """

    def __init__(self, stopper: Stopper) -> None:
        self.trial_ids: set[str] = set()
        self._stopper = stopper

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the user's stopper stops a trial with this result."""
        stops = self._stopper(trial_id, result)
        if stops:
            self.trial_ids.add(trial_id)
        return stops

    def stop_all(self) -> bool:
        """Return whether the user's stopper stops all trials."""
        return self._stopper.stop_all()

    def __reduce__(self) -> tuple[Any, tuple[Stopper]]:
        """Pickle as the user's stopper."""
        return _itself, (self._stopper,)


def _itself(stopper: Stopper) -> Stopper:
    return stopper
