"""Recycling of processes that have traced too many programs.

TensorFlow never frees a dropped program: a process that meets many model structures grows by
megabytes with each. Tune reuses actors regardless; the callback makes it start a new one.
"""

import functools
from typing import Any

import psutil
from ray.tune import Callback, PlacementGroupFactory

RECYCLE = "recycle_process"
"""Result key: the process that reported it should not serve another trial."""


MAX_PROGRAMS = 64
"""Traced programs of a process, a few megabytes of host memory each."""

_MAX_GROWTH_BYTES = 2 * 2**30
"""Growth of a process' resident memory since the end of the first trial's first epoch."""


def is_recycling_due(num_programs: int) -> bool:
    """Return whether this process should serve no other trial."""
    growth = _resident_bytes() - _initial_resident_bytes()
    return num_programs >= MAX_PROGRAMS or growth > _MAX_GROWTH_BYTES


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
