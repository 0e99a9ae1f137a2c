"""Placement group of a trial's processes."""

from typing import Any

import ray
from ray.util.placement_group import PlacementGroup

from tune_tf.errors import UnavailableResourcesError
from tune_tf.parallelism import Parallelism
from tune_tf.resources import TrialResources

_RESERVATION_S = 60


class Bundles:
    """Bundles of a trial's processes, reserved by Tune or, if ``trial_resources`` is None, here.

    Attributes:
        shares: Resources of each process.
        placement_group: Placement group of the processes.

    Raises:
        UnavailableResourcesError: There is no Ray cluster, or it is full.
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
        """Remove the placement group unless Tune owns it."""
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
