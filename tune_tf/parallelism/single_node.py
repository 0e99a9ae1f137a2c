"""What the kinds have in common whose parts stand on a device of one node each."""

from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_errors import Placement
from tune_tf.resources import TrialResources


class SingleNode:
    """A trial on one node that uses as many devices as it has parts."""

    num_workers: ClassVar[int] = 1
    placement: ClassVar[Placement] = "pack"

    @property
    def num_devices(self) -> int:
        """Devices of a trial."""
        raise NotImplementedError

    @property
    def parts(self) -> str:
        """What the devices are for, in words."""
        raise NotImplementedError

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a part."""
        return TrialResources(self.num_devices, self.num_devices if gpus_in_cluster else 0)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return what each process of a trial gets of its resources."""
        return (resources,)

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that do not hold a device for each part.

        Raises:
            InvalidSettingsError: There are fewer CPUs, or more or fewer GPUs.
        """
        if resources.gpus and resources.gpus != self.num_devices:
            error = (
                f"resources.gpus is {resources.gpus:g} but the trial has {self.parts}, which use "
                f"exactly one GPU each: reserve {self.num_devices}"
            )
        elif not resources.gpus and resources.cpus < self.num_devices:
            error = (
                f"resources.cpus is {resources.cpus} and no GPUs are reserved, but the trial has "
                f"{self.parts}, which need a CPU of their own each: reserve {self.num_devices} or "
                "more"
            )
        else:
            return
        raise InvalidSettingsError([error])
