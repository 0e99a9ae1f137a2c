"""Several copies of a model, each cut over several devices."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_errors import count_errors
from tune_tf.parallelism.single_node import SingleNode


@dataclass(frozen=True)
class Hybrid(SingleNode):
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

    num_replicas: int = 2
    num_stages: int = 2
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        names = ("num_replicas", "num_stages", "micro_batches")
        errors = [error for name in names for error in count_errors(self, name)]
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_devices(self) -> int:
        """Devices of a trial."""
        return self.num_replicas * self.num_stages

    @property
    def parts(self) -> str:
        """What the devices are for, in words."""
        return f"{self.num_replicas} replicas of {self.num_stages} stages"
