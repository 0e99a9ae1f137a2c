"""Combined data and model parallelism."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_errors import count_errors
from tune_tf.parallelism.single_node import SingleNode


@dataclass(frozen=True)
class Hybrid(SingleNode):
    """Data and model parallelism combined: model replicas that are each split into stages.

    It uses ``num_replicas * num_stages`` devices of one node. The gradients of all replicas are
    summed on the first replica's devices, stage by stage; its optimizer updates the weights, which
    the other replicas copy. The numbers are those of one device.

    Args:
        num_replicas: Number of model replicas. The global batch size does not depend on it.
        num_stages: Stages of each replica; see :class:`ModelParallel`.
        micro_batches: Pieces into which a replica splits its part of a batch.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str] = "hybrid"

    num_replicas: int = 2
    num_stages: int = 2
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Validate the settings."""
        names = ("num_replicas", "num_stages", "micro_batches")
        errors = [error for name in names for error in count_errors(self, name)]
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_replicas * self.num_stages

    @property
    def parts(self) -> str:
        """Description of the device layout."""
        return f"{self.num_replicas} replicas of {self.num_stages} stages"
