"""Ending a process that has traced too much, between two of its trials.

TensorFlow frees nothing of a program that is dropped: a process which meets many structures grows
by megabytes with each. Tune keeps an actor for the next trial whatever it holds; the callback here
makes it start a fresh one instead.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune import Callback, PlacementGroupFactory

from tune_tf.errors import InvalidSettingsError

RECYCLE = "recycle_process"
"""Key of a result: the process that reported it should not serve another trial."""


@dataclass(frozen=True)
class Recycling:
    """When a process has served long enough.

    Args:
        max_programs: Traced programs, a few megabytes of host memory each.
        max_growth_bytes: Resident memory above that of the first trial's first epoch.
    """

    max_programs: int = 64
    max_growth_bytes: int = 2 * 2**30

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        if self.max_programs < 1 or self.max_growth_bytes < 1:
            raise InvalidSettingsError(
                [f"max_programs and max_growth_bytes must be at least 1, not {self}"]
            )

    def is_due(self, num_programs: int) -> bool:
        """Return whether this process should end with its trial."""
        growth = resident_bytes() - _resident_at_first()
        return num_programs >= self.max_programs or growth > self.max_growth_bytes


class RecycleActors(Callback):
    """Makes Tune start a fresh actor after a trial whose process asked to be recycled.

    Tune reuses an actor for a pending trial of equal resources. A finished trial needs its
    resources no more, so this callback renames them: no pending trial matches, and Tune ends the
    actor as it does with any that it cannot use.
    """

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Mark the actor of a finished trial as not reusable, if it asked for that."""
        if (trial.last_result or {}).get(RECYCLE):
            bundles = [dict(bundle) for bundle in trial.placement_group_factory.bundles]
            trial.placement_group_factory = PlacementGroupFactory(
                [*bundles, {"CPU": 0.001}], strategy="PACK"
            )


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def _resident_at_first() -> int:
    return resident_bytes()
