"""The copies of the model that train together, and the strategy that keeps them equal."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tune_tf.training.devices import Devices


class Replicas:
    """The replicas of a trial; a single one needs no strategy and pays for none.

    Args:
        devices: A device a replica.
    """

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.num = devices.num_replicas
        self._strategy = _strategy(devices) if self.num > 1 else None

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which variables become mirrored."""
        return self._strategy.scope() if self._strategy else contextlib.nullcontext()

    def run(self, step: Callable[..., Any], *args: Any) -> Any:
        """Run ``step(replica, *args)`` in every replica, ``replica`` counting from 0."""
        if self._strategy is None:
            return step(0, *args)

        def in_replica(*args: Any) -> Any:
            context = tf.distribute.get_replica_context()
            return step(int(tf.get_static_value(context.replica_id_in_sync_group)), *args)

        return self._strategy.run(in_replica, args=args)

    def mean(self, values: Any) -> Any:
        """Average what :meth:`run` returned over the replicas."""
        if self._strategy is None:
            return values
        return tf.nest.map_structure(
            lambda value: self._strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None),
            values,
        )

    def place(self, tensors: Any) -> Any:
        """Put a copy of nested arrays on the device of every replica."""
        copies = []
        for name in self.devices.names:
            with tf.device(name):
                copies.append(tf.nest.map_structure(lambda a: tf.identity(tf.constant(a)), tensors))
        if self._strategy is None:
            return copies[0]
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: copies[context.replica_id_in_sync_group]
        )

    def all_reduce_mean(self, gradients: list[Any]) -> list[Any]:
        """Average gradients over the replicas, in replica context; None stays None.

        A sparse gradient stays sparse: the rows of all replicas, in their order.
        """
        present = [g for g in gradients if g is not None]
        reduced = iter(
            tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, present)
        )
        return [None if g is None else _divided(next(reduced), self.num) for g in gradients]


def _divided(gradient: Any, divisor: int) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / divisor, gradient.indices, gradient.dense_shape)
    return gradient / divisor


@functools.cache
def _strategy(devices: Devices) -> "tf.distribute.MirroredStrategy":
    """Return the one strategy of this process.

    On CPUs the default collectives end the process when a second model shape comes along, so
    reductions go over one device there.
    """
    reduction = tf.distribute.ReductionToOneDevice() if devices.on_cpu else None
    return tf.distribute.MirroredStrategy(list(devices.names), cross_device_ops=reduction)
