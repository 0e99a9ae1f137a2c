"""A trial whose model is cut over the devices of one node."""

from typing import TYPE_CHECKING, Any

from tune_tf.trainables.mirrored import MirroredTrainable

if TYPE_CHECKING:
    from tune_tf.training.core.loop import Loop
    from tune_tf.training.core.replicas import Replicas
    from tune_tf.training.devices import Devices


class ModelParallelTrainable(MirroredTrainable):
    """Trains a model that is cut into stages, or several copies of it, an epoch an iteration.

    Made ready for ``tune.run`` by :func:`tune_tf.trainable` with
    :class:`~tune_tf.ModelParallel` or :class:`~tune_tf.Hybrid`.
    """

    def _loop_on(self, devices: "Devices", parallelism: Any) -> "tuple[Replicas, Loop]":
        from tune_tf.training.stages.stage_devices import StageDevices
        from tune_tf.training.stages.stage_loop import StageLoop

        grid = StageDevices(devices, parallelism.num_stages)
        return grid, StageLoop(self._workload, grid, parallelism)
