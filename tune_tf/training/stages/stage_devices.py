"""Devices of a trial whose model replicas span several devices each."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tune_tf.training.core.replicas import Replicas
from tune_tf.training.devices import Devices
from tune_tf.training.input.array_tensor import tensor_of

_HOST = "CPU:0"


class StageDevices(Replicas):
    """Replicas of several stages with one device each, without a distribution strategy.

    ``tf.distribute.MirroredStrategy`` ignores the device of a layer, so the replicas are separate
    models here. The training step is driven as on one device that takes whole batches.

    Args:
        devices: ``num_stages`` devices of the first replica, then of the next, and so on.
        num_stages: Stages of each replica.
    """

    def __init__(self, devices: Devices, num_stages: int) -> None:
        super().__init__(devices.first(1))
        self.devices = devices
        self.rows = tuple(
            devices.names[first : first + num_stages]
            for first in range(0, len(devices.names), num_stages)
        )
        self.num_stages = num_stages
        self._places: Sequence[str] = ()
        self._created: list[tf.Variable] = []

    @property
    def num_replicas(self) -> int:
        """Number of model replicas."""
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of replicas and stages, which distinguish programs."""
        return len(self.rows), self.num_stages

    @property
    def has_several_devices(self) -> bool:
        """Always True: code paths for one device do not apply to stages."""
        return True

    def build(self, build: Callable[[], Any], places: Sequence[str] = ()) -> tuple[Any, list[Any]]:
        """Build a model; return it, and its variables in the order of their creation.

        Args:
            build: Function that enters :meth:`scope` and creates variables in a fixed order.
            places: Devices of the variables in that order; further variables go to the host.
        """
        self._places, self._created = places, []
        try:
            return build(), self._created
        finally:
            self._places, self._created = (), []

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Create variables on the host, or on the devices given to :meth:`build`."""
        with tf.device(_HOST), tf.variable_creator_scope(self._create):
            yield

    def place(self, tensors: Any) -> Any:
        """Copy nested arrays to the first device, from which every stage gets its rows."""
        with tf.device(self.rows[0][0]):
            return tf.nest.map_structure(lambda a: tf.identity(tensor_of(a)), tensors)

    def _create(self, next_creator: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        number = len(self._created)
        placed = number < len(self._places)
        with tf.device(self._places[number]) if placed else contextlib.nullcontext():
            variable = next_creator(**settings)
        self._created.append(variable)
        return variable
