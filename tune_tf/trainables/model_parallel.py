"""Trainable for a model that is split over the devices of one node."""

from typing import TYPE_CHECKING, Any

from tune_tf.trainables.mirrored import MirroredTrainable

if TYPE_CHECKING:
    from tune_tf.training.core.loop import Loop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.devices import Devices


class ModelParallelTrainable(MirroredTrainable):
    """Trainable for a model that is split into stages, one epoch per iteration.

    :func:`tune_tf.trainable` creates it for :class:`~tune_tf.ModelParallel` and
    :class:`~tune_tf.Hybrid`.
    """

    def _loop_on(self, devices: "Devices", parallelism: Any) -> "tuple[Replicas, Loop]":
        from tune_tf.training.stages.stage_devices import StageDevices
        from tune_tf.training.stages.stage_loop import StageLoop

        grid = StageDevices(devices, parallelism.num_stages)
        return grid, StageLoop(self._workload, grid, parallelism)
