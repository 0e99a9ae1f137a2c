"""Roles of a model's variables in asynchronous training."""

from dataclasses import dataclass

import keras

from tune_tf.errors import WorkloadError
from tune_tf.training.core.build import batch_norms, layers_in
from tune_tf.training.input.device_rows import DeviceRows


def refuse_streams(rows: DeviceRows) -> None:
    """Refuse rows that workers cannot pick by index."""
    if rows.is_streamed:
        raise WorkloadError(
            "asynchronous workers pick rows by index, but Data holds a Pipeline or a data "
            "set: return arrays, or use another kind of parallelism"
        )


@dataclass(frozen=True)
class VariableRoles:
    """Variables of a model that change during training, grouped by how a batch changes them.

    Trainable variables are updated by the optimizer. Statistics follow ``new = decay * old +
    move``. The decay of BatchNormalization statistics is the layer's momentum, so the averages
    equal those of one device that processes the batches in the order of their gradients, however
    old a worker's statistics were. Other floating-point variables have decay 1, and the move is the
    difference made by the batch.

    Counters are integers to which every batch adds the same amount, mainly states of random
    generators. So a batch draws the same dropout masks on any worker as on one device.

    Variables of frozen layers do not change. All are given by their index in ``model.variables``.
    """

    trainable: tuple[int, ...]
    statistics: tuple[tuple[int, float], ...]  # with decays
    counters: tuple[int, ...]

    @classmethod
    def of(cls, model: keras.Model) -> "VariableRoles":
        """Return the roles of a built model's variables."""
        decays = {
            id(statistic): float(layer.momentum)
            for layer in batch_norms(model)
            for statistic in (layer.moving_mean, layer.moving_variance)
        }
        fixed = {id(variable) for variable in model.trainable_variables} | {
            id(variable)
            for layer in layers_in(model)
            if not layer.trainable
            for variable in layer.variables
        }
        others = [(i, v) for i, v in enumerate(model.variables) if id(v) not in fixed]
        index = {id(variable): i for i, variable in enumerate(model.variables)}
        return cls(
            tuple(index[id(variable)] for variable in model.trainable_variables),
            tuple((i, decays.get(id(v), 1.0)) for i, v in others if "float" in str(v.dtype)),
            tuple(i for i, v in others if "int" in str(v.dtype)),
        )

    @property
    def live(self) -> tuple[int, ...]:
        """Indices of all variables that change."""
        return (*self.trainable, *(i for i, _ in self.statistics), *self.counters)
