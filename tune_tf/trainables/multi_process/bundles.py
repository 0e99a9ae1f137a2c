"""The bundles of a placement group in which the processes of one trial live."""

from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from tune_tf.errors import UnavailableResourcesError
from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources

_RESERVATION_S = 60


class Bundles:
    """What Tune has reserved for a trial's processes; for one driven by hand, the same.

    Args:
        trial_resources: The trial's ``PlacementGroupFactory``; None where it is driven by hand.
        parallelism: How it is spread.
        resources: What all its processes together reserve where Tune has reserved nothing.

    Attributes:
        shares: What each process may use.
        placement_group: Where they live.

    Raises:
        UnavailableResourcesError: There is no Ray cluster, or no room on it.
    """

    def __init__(
        self, trial_resources: Any, parallelism: Parallelism, resources: TrialResources
    ) -> None:
        self._own: PlacementGroup | None = None
        if not ray.is_initialized():
            raise UnavailableResourcesError(
                "a trial of several processes needs a Ray cluster for them: call ray.init()"
            )
        self.shares = _reserved(trial_resources) or list(parallelism.shares(resources))
        group = ray.util.get_current_placement_group()
        self.placement_group: PlacementGroup = group or self._reserve(parallelism)

    def give_back(self) -> None:
        """Free what Tune has not reserved."""
        if self._own is not None:
            ray.util.remove_placement_group(self._own)
            self._own = None

    def _reserve(self, parallelism: Parallelism) -> PlacementGroup:
        group = self._own = ray.util.placement_group(
            [share.bundle for share in self.shares], strategy=parallelism.placement.upper()
        )
        if not group.wait(_RESERVATION_S):
            self.give_back()
            raise UnavailableResourcesError(
                f"the Ray cluster had no room for {len(self.shares)} workers with {self.shares[0]} "
                f"each within {_RESERVATION_S} s: ask for less, or add machines"
            )
        return group


def _reserved(trial_resources: Any) -> list[TrialResources]:
    if trial_resources is None:
        return []
    return [
        TrialResources(cpus=max(1, int(bundle.get("CPU", 1))), gpus=bundle.get("GPU", 0))
        for bundle in trial_resources.bundles
        if bundle
    ]
