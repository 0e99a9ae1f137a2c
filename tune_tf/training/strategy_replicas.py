"""The one copy of a model whose variables are on parameter servers of TensorFlow's."""

from typing import Any

import tensorflow as tf

from tune_tf.training.devices import Devices
from tune_tf.training.replicas import Replicas

# A step that waits for the lock of an update keeps a thread: with one alone it waits for ever.
_SPARE_THREADS = 4


class StrategyReplicas(Replicas):
    """A model that workers of ``tf.distribute.ParameterServerStrategy`` train.

    The server process is its chief and its parameter server at a time.

    Args:
        devices: Of the server process.
        cluster: Addresses ``host:port`` by job: ``chief``, ``ps``, ``worker``.

    Attributes:
        coordinator: Hands what is to be computed to the workers.
    """

    def __init__(self, devices: Devices, cluster: dict[str, list[str]]) -> None:
        self.devices = devices
        self.num = 1
        start_server(cluster, "ps", 0, num_threads=1)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
        )
        self._strategy: Any = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self._strategy)

    def run(self, step: Any, *args: Any) -> Any:
        """Run ``step(*args)`` in replica context, as Keras' optimizers ask for."""
        return self._strategy.run(step, args=args)


def start_server(cluster: dict[str, list[str]], job: str, index: int, *, num_threads: int) -> Any:
    """Start TensorFlow's server of a task in this process, and return it.

    Args:
        cluster: Addresses by job.
        job: ``ps`` or ``worker``.
        index: Number of the task.
        num_threads: That it computes with.
    """
    waiting = len(cluster["worker"]) + _SPARE_THREADS
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=num_threads,
        inter_op_parallelism_threads=num_threads + waiting,
    )
    config.gpu_options.allow_growth = True
    return tf.distribute.Server(
        tf.train.ClusterSpec(cluster),
        job_name=job,
        task_index=index,
        protocol="grpc",
        config=config,
    )
