"""How one trial is spread over devices."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.resources import TrialResources


@dataclass(frozen=True)
class Mirrored:
    """Copies of the model on the devices of one node, each training on its part of a batch.

    Args:
        num_replicas: Copies of the model, each on a device of its own. The global batch size does
            not depend on it.

    Raises:
        InvalidSettingsError: ``num_replicas`` is not a whole number of at least 1.
    """

    kind: ClassVar[str] = "mirrored"

    num_replicas: int = 1

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        n = self.num_replicas
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidSettingsError(
                [f"num_replicas must be a whole number of at least 1, not {n!r}"]
            )

    def resources(self, *, gpus_in_cluster: bool) -> TrialResources:
        """Return what a trial reserves when nothing else is said: a device a replica."""
        if gpus_in_cluster:
            return TrialResources(cpus=self.num_replicas, gpus=self.num_replicas)
        return TrialResources(cpus=self.num_replicas)

    def check(self, resources: TrialResources) -> None:
        """Refuse resources that this parallelism cannot use.

        Raises:
            InvalidSettingsError: There are more replicas than reserved devices, or fewer than GPUs.
        """
        if not resources.gpus and resources.cpus < self.num_replicas:
            raise InvalidSettingsError(
                [
                    f"parallelism.num_replicas is {self.num_replicas} but resources.cpus is "
                    f"{resources.cpus} and no GPUs are reserved: a replica needs a CPU of its own; "
                    "reserve more, or use fewer replicas"
                ]
            )
        if resources.gpus >= 1 and resources.gpus != self.num_replicas:
            raise InvalidSettingsError(
                [
                    f"resources.gpus is {resources.gpus:g} but parallelism.num_replicas is "
                    f"{self.num_replicas}: a replica uses exactly one GPU; make the two equal"
                ]
            )
        if 0 < resources.gpus < 1 and self.num_replicas > 1:
            raise InvalidSettingsError(
                [
                    f"resources.gpus is {resources.gpus:g}, a share of one card, but "
                    f"parallelism.num_replicas is {self.num_replicas}: reserve whole GPUs, one a "
                    "replica, or use one replica"
                ]
            )


Parallelism = Mirrored
"""Any of the values that say how a trial is spread."""
