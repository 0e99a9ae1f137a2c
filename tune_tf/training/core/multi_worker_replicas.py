"""Replicas of a model in several processes, with the strategy that keeps them equal."""

import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tune_tf.errors import WorkloadError
from tune_tf.training.core.replicas import Replicas, SingleReplicaMixin
from tune_tf.training.core.row_weights import split_rows
from tune_tf.training.devices import Devices
from tune_tf.training.input.array_tensor import tensor_of
from tune_tf.training.rendezvous import PortTakenError


class _Strategy(SingleReplicaMixin, tf.distribute.MultiWorkerMirroredStrategy):
    """Replicas in several processes."""


class MultiWorkerReplicas(Replicas):
    """Replicas of one worker, which reduce with those of the other workers.

    Creating a variable, reading a metric and running a batch are collective operations, so all
    workers must do them in the same order. A process has one strategy for its whole life.

    Args:
        devices: The devices of this process.
        addresses: ``host:port`` of every worker, by rank.
        rank: This worker's rank.

    Raises:
        PortTakenError: Another process listens on this worker's port.
        WorkloadError: TensorFlow was used in this process before.
    """

    def __init__(self, devices: Devices, addresses: Sequence[str], rank: int) -> None:
        self.devices = devices
        # TensorFlow's documented interface, from which a workload may also read its rank.
        os.environ["TF_CONFIG"] = json.dumps(
            {
                "cluster": {"worker": list(addresses)},
                "task": {"type": "worker", "index": rank},
            }
        )
        self._strategy: Any
        try:
            self._strategy = _Strategy()
        except tf.errors.UnknownError as error:
            if "Could not start gRPC server" not in str(error):
                raise
            raise PortTakenError(
                f"worker {rank} could not listen at {addresses[rank]}: another process took the "
                "port"
            ) from error
        except RuntimeError as error:
            if "program startup" not in str(error):
                raise
            raise WorkloadError(
                "the workload's module runs TensorFlow operations on import, but workers can only "
                "be connected before the first one: move them into load_data or build_model"
            ) from error
        self.num = self._strategy.num_replicas_in_sync
        self._rank = rank

    def window(self, num_rows: int) -> tuple[int, int]:
        """Return the rows ``[first, last)`` of a global batch that this process needs.

        Custom steps need all rows of a batch with fewer rows than replicas.
        """
        if num_rows < self.num:
            return 0, num_rows
        local = len(self._strategy.extended.worker_devices)
        first = self._rank * local
        return (
            split_rows(num_rows, first, self.num)[0],
            split_rows(num_rows, first + local - 1, self.num)[1],
        )

    def place(self, tensors: Any) -> Any:
        """Copy nested arrays to the device of every replica of this process."""
        copies = []
        for name in self._strategy.extended.worker_devices:
            with tf.device(name):
                copies.append(tf.nest.map_structure(lambda a: tf.identity(tensor_of(a)), tensors))
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: copies[context.replica_id_in_sync_group % len(copies)]
        )
