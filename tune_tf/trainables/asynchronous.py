"""Trainable with asynchronous workers and a parameter server."""

from collections.abc import Sequence
from dataclasses import replace

from ray.util.placement_group import PlacementGroup

from tune_tf.resources import TrialResources
from tune_tf.trainables.multi_process.asynchronous_group import AsynchronousGroup
from tune_tf.trainables.multi_process.heartbeat import Watch
from tune_tf.trainables.multi_process.process_trainable import SingleModelTrainable
from tune_tf.trainables.multi_process.worker import WorkerAssignment


class AsynchronousTrainable(SingleModelTrainable):
    """Trainable for one model whose workers send gradients to a parameter server asynchronously."""

    def make_processes(
        self,
        assignment: WorkerAssignment,
        shares: Sequence[TrialResources],
        placement_group: PlacementGroup,
        watch: Watch,
    ) -> AsynchronousGroup:
        """Start the server and one worker in each of the other bundles."""
        num_workers = len(shares) - bool(self._parallelism.server_cpus)
        return AsynchronousGroup(
            assignment,
            replace(self._parallelism, num_workers=num_workers),
            placement_group=placement_group,
            watch=watch,
        )
