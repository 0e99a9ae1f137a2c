"""Several copies of a model, each cut over several devices."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.model_parallel import check_device_each, device_each
from tune_tf.parallelism.setting_faults import Placement, count_fault
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class Hybrid:
    """Copies of a model that train on parts of each batch, each cut into stages.

    Data and model parallel at once, on ``num_replicas * num_stages`` devices of one node. The
    gradients of all copies are summed on the first copy's devices, stage by stage; its optimizer
    updates the weights, and the other copies take them over. The numbers are those of one device.

    Args:
        num_replicas: Copies of the model. The global batch size does not depend on it.
        num_stages: Stages of each copy; see :class:`ModelParallel`.
        micro_batches: Pieces in which a copy takes its part of a batch.

    Raises:
        InvalidSettingsError: A value is not allowed; tells all of them.
    """

    kind: ClassVar[str] = "hybrid"
    num_workers: ClassVar[int] = 1
    placement: ClassVar[Placement] = "pack"

    num_replicas: int = 2
    num_stages: int = 2
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        names = ("num_replicas", "num_stages", "micro_batches")
        faults = [fault for name in names for fault in count_fault(self, name)]
        if faults:
            raise InvalidSettingsError(faults)

    @property
    def num_devices(self) -> int:
        """Devices of a trial."""
        return self.num_replicas * self.num_stages

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a stage and copy."""
        return device_each(self.num_devices, gpus_in_cluster=gpus_in_cluster)

    def shares(self, resources: TrialResources) -> tuple[TrialResources, ...]:
        """Return what each process of a trial gets of its resources."""
        return (resources,)

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that this parallelism cannot use.

        Raises:
            InvalidSettingsError: There are not as many devices as stages of all copies.
        """
        parts = f"{self.num_replicas} replicas of {self.num_stages} stages"
        check_device_each(resources, self.num_devices, parts)
