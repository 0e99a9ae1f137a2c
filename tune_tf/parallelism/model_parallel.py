"""Model parallelism: one model split over several devices, and replicas of such a model."""

from dataclasses import replace
from typing import ClassVar

from tune_tf.parallelism.parallelism import Count, Parallelism
from tune_tf.validation import validated


class _Staged(Parallelism):
    """Base class of kinds that use one device of a node for each stage of each replica."""

    trainable: ClassVar[str] = "tune_tf.trainables.mirrored:ModelParallelTrainable"
    part: ClassVar[str] = "stage"
    pieces_save_memory: ClassVar[bool] = False

    num_stages: int

    @property
    def num_devices(self) -> int:
        """Number of devices of a trial."""
        return self.num_replicas * self.num_stages


@validated
class ModelParallel(_Staged):
    """Model parallelism: one model split into stages, one per device.

    For models that are too large for one device. :meth:`tune_tf.Workload.stage_of` assigns layers
    to stages; by default, the variables of the largest stage have as few bytes as possible.
    Variables, computation and optimizer slots of a layer are on the device of its stage. The
    numbers are those of one device.

    Args:
        num_stages: Number of stages and devices.
        micro_batches: Pieces into which a batch is split for pipelining: a stage works on one piece
            while the next stage works on the previous one. The gradient is that of the whole batch.
    """

    kind: ClassVar[str] = "model_parallel"

    num_stages: Count = 2
    micro_batches: Count = 1

    def scaled_to(self, num_replicas: int) -> Parallelism:
        """Return the layout with this number of model replicas."""
        if num_replicas == 1:
            return self
        return Hybrid(num_replicas, self.num_stages, self.micro_batches)


@validated
class Hybrid(_Staged):
    """Data and model parallelism combined: model replicas that are each split into stages.

    It uses ``num_replicas * num_stages`` devices of one node. The gradients of all replicas are
    summed on the first replica's devices, stage by stage; its optimizer updates the weights, which
    the other replicas copy. The numbers are those of one device.

    Args:
        num_replicas: Number of model replicas. The global batch size does not depend on it.
        num_stages: Stages of each replica; see :class:`ModelParallel`.
        micro_batches: Pieces into which a replica splits its part of a batch.
    """

    kind: ClassVar[str] = "hybrid"

    num_replicas: Count = 2
    num_stages: Count = 2
    micro_batches: Count = 1

    @property
    def label(self) -> str:
        """Short readable description."""
        return f"{self.num_replicas} replicas of {self.num_stages} stages"

    def scaled_to(self, num_replicas: int) -> "Hybrid":
        """Return the layout with this number of model replicas."""
        return replace(self, num_replicas=num_replicas)
