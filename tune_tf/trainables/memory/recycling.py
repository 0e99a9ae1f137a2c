"""Recycling of processes that have traced too many programs.

TensorFlow never frees a dropped program: a process that meets many model structures grows by
megabytes with each. Tune reuses actors regardless; the callback makes it start a new one.
"""

import functools
from dataclasses import dataclass
from typing import Any

import psutil
from ray.tune import Callback, PlacementGroupFactory

from tune_tf.errors import InvalidSettingsError

RECYCLE = "recycle_process"
"""Result key: the process that reported it should not serve another trial."""


@dataclass(frozen=True)
class Recycling:
    """Limits after which a process serves no other trial.

    Args:
        max_programs: Traced programs, a few megabytes of host memory each.
        max_growth_bytes: Growth of resident memory since the end of the first trial's first epoch.
    """

    max_programs: int = 64
    max_growth_bytes: int = 2 * 2**30

    def __post_init__(self) -> None:
        """Validate the limits."""
        if self.max_programs < 1 or self.max_growth_bytes < 1:
            raise InvalidSettingsError(
                [f"max_programs and max_growth_bytes must be at least 1, not {self}"]
            )

    def is_due(self, num_programs: int) -> bool:
        """Return whether this process has reached a limit."""
        growth = _resident_bytes() - _initial_resident_bytes()
        return num_programs >= self.max_programs or growth > self.max_growth_bytes


class ActorRecycler(Callback):
    """Callback that ends the actor of a finished trial if its process requested recycling.

    Tune reuses an actor for a pending trial of equal resources. This callback changes the resources
    of the finished trial, which needs them no longer, so that none matches and Tune ends the actor.
    """

    def on_trial_complete(self, trial: Any, **info: Any) -> None:
        """Mark the actor of a finished trial as not reusable, if it requested recycling."""
        if (trial.last_result or {}).get(RECYCLE):
            bundles = [dict(bundle) for bundle in trial.placement_group_factory.bundles]
            trial.placement_group_factory = PlacementGroupFactory(
                [*bundles, {"CPU": 0.001}], strategy="PACK"
            )


@functools.cache
def _initial_resident_bytes() -> int:
    return _resident_bytes()


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
