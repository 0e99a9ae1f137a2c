"""Model parallelism: one model split over several devices."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_errors import count_errors
from tune_tf.parallelism.single_node import SingleNode


@dataclass(frozen=True)
class ModelParallel(SingleNode):
    """Model parallelism: one model split into stages, one per device.

    For models that are too large for one device. :meth:`tune_tf.Workload.stage_of` assigns layers
    to stages; by default, the variables of the largest stage have as few bytes as possible.
    Variables, computation and optimizer slots of a layer are on the device of its stage. The
    numbers are those of one device.

    Args:
        num_stages: Number of stages and devices.
        micro_batches: Pieces into which a batch is split for pipelining: a stage works on one piece
            while the next stage works on the previous one. The gradient is that of the whole batch.

    Raises:
        InvalidSettingsError: A value is not allowed; the message lists all errors.
    """

    kind: ClassVar[str] = "model_parallel"
    num_replicas: ClassVar[int] = 1

    num_stages: int = 2
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Validate the settings."""
        errors = [*count_errors(self, "num_stages"), *count_errors(self, "micro_batches")]
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_stages

    @property
    def parts(self) -> str:
        """Description of the device layout."""
        return f"{self.num_stages} stages"
