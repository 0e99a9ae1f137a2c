"""One model that is cut over several devices."""

from dataclasses import dataclass
from typing import ClassVar

from tune_tf.errors import InvalidSettingsError
from tune_tf.parallelism.setting_errors import count_errors
from tune_tf.parallelism.single_node import SingleNode


@dataclass(frozen=True)
class ModelParallel(SingleNode):
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
    num_replicas: ClassVar[int] = 1

    num_stages: int = 2
    micro_batches: int = 1

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        errors = [*count_errors(self, "num_stages"), *count_errors(self, "micro_batches")]
        if errors:
            raise InvalidSettingsError(errors)

    @property
    def num_devices(self) -> int:
        """Devices of a trial."""
        return self.num_stages

    @property
    def parts(self) -> str:
        """What the devices are for, in words."""
        return f"{self.num_stages} stages"
