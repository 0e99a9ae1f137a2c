"""Trainables for one model on the devices of one node, in the trial's own process."""

from typing import TYPE_CHECKING, Any

from tune_tf.parallelism import Mirrored
from tune_tf.trainables.trial_process import TrialProcess
from tune_tf.trainables.trial_trainable import TrialTrainable
from tune_tf.workload import Config

if TYPE_CHECKING:
    from tune_tf.trainables.trial_process import Loop
    from tune_tf.training.devices import Devices
    from tune_tf.training.loop import GraphLoop
    from tune_tf.training.replicas.replicas import Replicas


class MirroredTrainable(TrialTrainable):
    """Trainable for one model on the devices of one node, one epoch per iteration."""

    def set_up_processes(self, config: Config) -> None:
        """Claim the devices of this process and begin the first trial."""
        settings, parallelism = self._settings, self._settings.parallelism
        self._processes: TrialProcess = TrialProcess()
        if settings.elastic and settings.loop == "graph" and isinstance(parallelism, Mirrored):
            workload = self._workload.load("the process of the trial")
            batch_size = workload.global_batch_size(config)
            parallelism = parallelism.scaled_to_resources(
                settings.resources, self.own_resources, batch_size=batch_size
            )
        self.claim_devices(self._processes, parallelism.num_devices)
        self._serve(self._processes.devices, parallelism)
        self._begin(config)

    def cleanup(self) -> None:
        """End the trial."""
        self._processes.finish()
        self._processes.log.end()

    def _serve(self, devices: "Devices", parallelism: Any) -> None:
        """Train on devices from now on."""
        loop: Loop
        if self._settings.loop == "fit":
            from tune_tf.training.fit_loop import FitLoop
            from tune_tf.training.replicas.replicas import Replicas

            self._replicas = Replicas(devices)
            loop = FitLoop(self._replicas)
        else:
            self._replicas, loop = self._graph_loop(devices, parallelism)
        self._processes.serve(loop, self._replicas)

    def _graph_loop(self, devices: "Devices", parallelism: Any) -> "tuple[Replicas, GraphLoop]":
        """Return the replicas and the loop for the trials of this process."""
        from tune_tf.training.loop import GraphLoop
        from tune_tf.training.replicas.replicas import Replicas

        replicas = Replicas(devices)
        frozen = self._processes.frozen_outputs(replicas)
        return replicas, GraphLoop(replicas, parallelism, frozen=frozen)


class ModelParallelTrainable(MirroredTrainable):
    """Trainable for a model that is split into stages, one epoch per iteration."""

    def _graph_loop(self, devices: "Devices", parallelism: Any) -> "tuple[Replicas, GraphLoop]":
        from tune_tf.training.stages.stage_builder import StageDevices, stage_loop

        stages = StageDevices(devices, parallelism.num_stages)
        return stages, stage_loop(stages, parallelism)
