"""One model that is cut over several devices."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_faults import Placement, count_fault
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class ModelParallel:
    """One copy of a model, cut into stages that stand on a device each.

    For models that are too large for one device. Layers go to the stages that
    :meth:`tune_tf.Workload.stage_of` names, or so that the largest stage has as few bytes of
    variables as can be. Variables, computation and optimizer slots of a layer are on its stage's
    device. The numbers are those of one device.

    Args:
        num_stages: Stages, each on a device of its own.
        micro_batches: Pieces in which a batch goes through the stages, so that one stage works on
            a piece while the next works on the piece before. The gradient is that of the whole
            batch.

    Raises:
        InvalidSettingsError: A value is not allowed; tells all of them.
    """

    kind: ClassVar[str] = "model_parallel"
    num_workers: ClassVar[int] = 1
    placement: ClassVar[Placement] = "pack"
    num_replicas: ClassVar[int] = 1

    num_stages: int = 2
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = [*count_fault(self, "num_stages"), *count_fault(self, "micro_batches")]
        if faults:
            raise InvalidSettingsError(faults)

    @property
    def num_devices(self) -> int:
        """Devices of a trial."""
        return self.num_stages

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a stage."""
        return device_each(self.num_devices, gpus_in_cluster=gpus_in_cluster)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return what each process of a trial gets of its resources."""
        return (resources,)

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that this parallelism cannot use.

        Raises:
            InvalidSettingsError: There are not as many devices as stages.
        """
        check_device_each(resources, self.num_devices, f"{self.num_stages} stages")


def device_each(num_devices: int, *, gpus_in_cluster: bool) -> TrialResources:
    """Return resources with a device for each of several parts of a trial."""
    return TrialResources(cpus=num_devices, gpus=num_devices if gpus_in_cluster else 0)


def check_device_each(resources: TrialResources, num_devices: int, parts: str) -> None:
    """Refuse resources that do not hold a device for each part of a trial.

    Args:
        resources: Of the trial.
        num_devices: Devices that it trains on.
        parts: What it needs them for, in words.

    Raises:
        InvalidSettingsError: There are fewer CPUs, or more or fewer GPUs.
    """
    if resources.gpus and resources.gpus != num_devices:
        raise InvalidSettingsError(
            [
                f"resources.gpus is {resources.gpus:g} but the trial has {parts}, which use "
                f"exactly one GPU each: reserve {num_devices}"
            ]
        )
    if not resources.gpus and resources.cpus < num_devices:
        raise InvalidSettingsError(
            [
                f"resources.cpus is {resources.cpus} and no GPUs are reserved, but the trial has "
                f"{parts}, which need a CPU of their own each: reserve {num_devices} or more"
            ]
        )
