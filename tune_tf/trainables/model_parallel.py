"""Trainable for a model that is split over the devices of one node."""

from typing import TYPE_CHECKING, Any

from tune_tf.trainables.mirrored import MirroredTrainable

if TYPE_CHECKING:
    from tune_tf.training.core.loop import GraphLoop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.devices import Devices


class ModelParallelTrainable(MirroredTrainable):
    """Trainable for a model that is split into stages, one epoch per iteration.

    :func:`tune_tf.trainable` creates it for :class:`~tune_tf.ModelParallel` and
    :class:`~tune_tf.Hybrid`.
    """

    def _loop_on(self, devices: "Devices", parallelism: Any) -> "tuple[Replicas, GraphLoop]":
        from tune_tf.training.stages.stage_builder import StageDevices, stage_loop

        grid = StageDevices(devices, parallelism.num_stages)
        return grid, stage_loop(self._workload, grid, parallelism)
