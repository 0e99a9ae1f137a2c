"""The devices of a trial whose copies of the model span several devices each."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tune_tf.training.core.replicas import Replicas
from tune_tf.training.devices import Devices
from tune_tf.training.input.array_tensor import tensor_of

_HOST = "CPU:0"


class StageDevices(Replicas):
    """Replicas by stages, a device each; no strategy is involved.

    ``tf.distribute.MirroredStrategy`` ignores where a layer wants to be, so the copies are models
    of their own here. What drives a step sees one device that takes whole batches.

    Args:
        devices: ``num_stages`` for the first replica, then for the next, and so on.
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
        """Copies of the model."""
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Replicas and stages: programs differ by it."""
        return len(self.rows), self.num_stages

    @property
    def has_several_devices(self) -> bool:
        """Whether a batch goes over more than one device; always so treated."""
        return True

    def build(self, build: Callable[[], Any], places: Sequence[str] = ()) -> tuple[Any, list[Any]]:
        """Build a model on the host, or its variables where they belong.

        Args:
            build: Enters :meth:`scope` and creates variables, always in the same order.
            places: Devices of the variables in that order; those beyond it go to the host.

        Returns:
            What was built, and all variables in the order of their creation.
        """
        self._places, self._created = places, []
        try:
            return build(), self._created
        finally:
            self._places, self._created = (), []

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Create variables on the host, or where :meth:`build` wants them."""
        with tf.device(_HOST), tf.variable_creator_scope(self._create):
            yield

    def place(self, tensors: Any) -> Any:
        """Put nested arrays on the first device, from where every stage gets its rows."""
        with tf.device(self.rows[0][0]):
            return tf.nest.map_structure(lambda a: tf.identity(tensor_of(a)), tensors)

    def _create(self, next_creator: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        number = len(self._created)
        placed = number < len(self._places)
        with tf.device(self._places[number]) if placed else contextlib.nullcontext():
            variable = next_creator(**settings)
        self._created.append(variable)
        return variable
