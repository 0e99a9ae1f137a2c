"""Replicas of a model, with the strategy that keeps them equal."""

import contextlib
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tune_tf.errors import WorkerLostError, WorkloadError
from tune_tf.training.devices import Devices
from tune_tf.training.input.array_tensor import tensor_of
from tune_tf.training.replicas.batch_parts import scale_gradient


class Replicas:
    """Replicas of a trial's model, one per device; a single one runs without a strategy."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.num = len(devices.names)
        self._strategy = _strategy(devices) if self.num > 1 else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Part of the layout that a traced program depends on."""
        return (self.num,)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which variables become mirrored, or lie on the only device."""
        return self._strategy.scope() if self._strategy else self.device_scope()

    def device_scope(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context of a single device, where TensorFlow would choose another."""
        if self._strategy or self.is_on_first_device:
            return contextlib.nullcontext()
        return tf.device(self.devices.names[0])

    @property
    def is_on_first_device(self) -> bool:
        """Whether the first replica is where TensorFlow runs what names no device."""
        return self.devices.names[0] == _default_device()

    def run(self, step: Callable[..., Any], *args: Any) -> Any:
        """Run ``step(replica, *args)`` in every replica; ``replica`` counts from 0."""
        if self._strategy is None:
            return step(0, *args)

        def in_replica(*args: Any) -> Any:
            context = tf.distribute.get_replica_context()
            return step(int(tf.get_static_value(context.replica_id_in_sync_group)), *args)

        return self._strategy.run(in_replica, args=args)

    @contextlib.contextmanager
    def as_single_replica(self, share: Any) -> Iterator[None]:
        """Run code for one device in replica context.

        Keras and TensorFlow divide losses by the number of replicas, and custom code does not. In
        this context both give means over the replica's rows, and :meth:`sum_gradients` weighs their
        gradients by ``share``, the replica's rows divided by an even share of the batch.
        """
        _replica.share = share
        _replica.has_weighed_gradients = False
        try:
            yield
        finally:
            _replica.share = None

    @property
    def has_weighed_gradients(self) -> bool:
        """Whether gradients were weighed in this replica since :meth:`as_single_replica`."""
        return _replica.has_weighed_gradients

    def mean(self, values: Any) -> Any:
        """Average the results of :meth:`run` over the replicas."""
        if self._strategy is None:
            return values
        return tf.nest.map_structure(
            lambda value: self._strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None),
            values,
        )

    def place(self, tensors: Any) -> Any:
        """Copy nested arrays to every replica of this process, or to the first stage's device."""
        strategy = self._strategy
        names = self.devices.names[:1] if strategy is None else strategy.extended.worker_devices
        copies = []
        for name in names:
            with tf.device(name):
                copies.append(tf.nest.map_structure(lambda a: tf.identity(tensor_of(a)), tensors))
        if strategy is None:
            return copies[0]
        return strategy.experimental_distribute_values_from_function(
            lambda context: copies[context.replica_id_in_sync_group % len(copies)]
        )

    def first_copy(self, placed: Any) -> Any:
        """Return one device's copy of placed arrays."""
        if self._strategy is None:
            return placed
        return tf.nest.map_structure(
            lambda copies: self._strategy.experimental_local_results(copies)[0], placed
        )

    def gather(self, tensors: list[Any], num_rows: Any) -> list[Any]:
        """Return all rows of tensors of which each replica has some, in replica context.

        There are ``num_rows`` of them, an integer or a tensor.
        """
        if self._strategy is None or not tensors:
            return tensors
        context = tf.distribute.get_replica_context()
        sent = [tf.cast(rows, _gathered_dtype(rows.dtype)) for rows in tensors]
        whole = context.all_gather(sent, axis=0)
        size = num_rows if isinstance(num_rows, int) else None
        return [
            tf.ensure_shape(tf.cast(all_rows, rows.dtype), [size, *rows.shape[1:]])
            for all_rows, rows in zip(whole, tensors, strict=True)
        ]

    def sum(self, value: Any) -> Any:
        """Return the sum of a number over the replicas, in replica context."""
        if self._strategy is None:
            return value
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)

    def sum_gradients(self, gradients: list[Any]) -> list[Any]:
        """Return gradients of the whole batch, in replica context; None stays None.

        They are weighed by rows in :meth:`as_single_replica`. A sparse gradient stays sparse, with
        the rows of all replicas in their order.
        """
        _replica.has_weighed_gradients = True
        present = [g for g in gradients if g is not None]
        if _replica.share is not None:
            present = [scale_gradient(g, _replica.share / self.num) for g in present]
        context = tf.distribute.get_replica_context()
        total = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
        return [None if g is None else next(total) for g in gradients]


class _ReplicaThread(threading.local):
    """State of a replica, per thread because TensorFlow traces each replica in its own thread."""

    share: Any = None  # a number or tensor; None outside as_single_replica
    has_weighed_gradients: bool = False


_replica = _ReplicaThread()


class _SingleReplicaMixin:
    """Strategy mixin that lets replicas run code for a single device."""

    @property
    def num_replicas_in_sync(self) -> int:
        """Number by which code in this thread divides its losses."""
        return super().num_replicas_in_sync if _replica.share is None else 1  # type: ignore[misc]


class _Strategy(_SingleReplicaMixin, tf.distribute.MirroredStrategy):
    """Replicas on one node."""


class _MultiWorkerStrategy(_SingleReplicaMixin, tf.distribute.MultiWorkerMirroredStrategy):
    """Replicas in several processes."""


def _gathered_dtype(dtype: Any) -> Any:
    """Return the type in which several workers can gather numbers of a type without loss."""
    if dtype in (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64):
        return dtype
    return tf.float32 if dtype.is_floating else tf.int64


def _default_device() -> str:
    """Return the device on which TensorFlow runs what it is not told to run elsewhere."""
    return "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"


@functools.cache
def _strategy(devices: Devices) -> "tf.distribute.MirroredStrategy":
    """Return the strategy of this process.

    On CPUs, reductions go over one device, because the default collectives end the process at the
    second model shape.
    """
    reduction = tf.distribute.ReductionToOneDevice() if devices.on_cpu else None
    return _Strategy(list(devices.names), cross_device_ops=reduction)


def _communication(devices: Devices) -> Any:
    """Return how workers exchange gradients: by NCCL between GPUs, else as TensorFlow chooses."""
    options = tf.distribute.experimental
    kind = options.CommunicationImplementation
    return options.CommunicationOptions(implementation=kind.AUTO if devices.on_cpu else kind.NCCL)


class MultiWorkerReplicas(Replicas):
    """Replicas of one worker, which reduce with those of the other workers.

    Creating a variable, reading a metric and running a batch are collective operations, so all
    workers must do them in the same order. A process has one strategy for its whole life. The
    addresses are ``host:port`` by rank.

    Raises:
        WorkerLostError: Another process listens on this worker's port.
        WorkloadError: TensorFlow was used in this process before.
    """

    def __init__(self, devices: Devices, addresses: Sequence[str], rank: int) -> None:
        self.devices = devices
        # TensorFlow's documented interface, from which a workload may also read its rank.
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": list(addresses)}, "task": task})
        self._strategy: Any
        try:
            self._strategy = _MultiWorkerStrategy(communication_options=_communication(devices))
        except tf.errors.UnknownError as error:
            if "Could not start gRPC server" not in str(error):
                raise
            raise WorkerLostError(
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
