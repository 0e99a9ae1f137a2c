"""Base class of single-node kinds with one device per part."""

from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_errors import Placement
from tune_tf.resources import TrialResources


class SingleNode:
    """Base class of kinds that use one device of a node for each part of the model."""

    num_workers: ClassVar[int] = 1
    placement: ClassVar[Placement] = "pack"

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        raise NotImplementedError

    @property
    def parts(self) -> str:
        """Description of the device layout."""
        raise NotImplementedError

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return the default resources of a trial: one device per part."""
        return TrialResources(self.num_devices, self.num_devices if gpus_in_cluster else 0)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return the resources of each process of a trial."""
        return (resources,)

    def check(self, resources: TrialResources) -> None:
        """Check that the resources have one device for each part.

        Raises:
            InvalidSettingsError: There are too few CPUs, or a different number of GPUs.
        """
        if resources.gpus and resources.gpus != self.num_devices:
            error = (
                f"resources.gpus is {resources.gpus:g} but the trial has {self.parts}, which use "
                f"exactly one GPU each: reserve {self.num_devices}"
            )
        elif not resources.gpus and resources.cpus < self.num_devices:
            error = (
                f"resources.cpus is {resources.cpus} and no GPUs are reserved, but the trial has "
                f"{self.parts}, which need one CPU each: reserve {self.num_devices} or "
                "more"
            )
        else:
            return
        raise InvalidSettingsError([error])
