"""What becomes of each variable of a model that several workers train without waiting."""

from dataclasses import dataclass
from typing import Any

import keras

from tune_tf.training.core.batch_norm import batch_norms, layers_in


@dataclass(frozen=True)
class VariableRoles:
    """The variables of a model that change, by what a batch does to them.

    The optimizer changes the trainable ones. A batch moves statistics:
    ``new = decay * old + move``. For BatchNormalization the decay is its momentum, so the averages
    are those of one device that gets the batches in the order in which their gradients came,
    however old the statistics were that a worker began with. Of any other number the move is the
    difference that the batch made, and the decay is 1.

    Counters are whole numbers, to which every batch adds the same: states of random generators
    first of all. So a batch draws the masks that it draws on one device, whoever computes it.

    What belongs to frozen layers stays as it is.

    Args:
        trainable: Their indices in ``model.variables``.
        statistics: Index and decay of each.
        counters: Their indices.
    """

    trainable: tuple[int, ...]
    statistics: tuple[tuple[int, float], ...]
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
            tuple((i, decays.get(id(v), 1.0)) for i, v in others if _is_real(v)),
            tuple(i for i, v in others if _is_counter(v)),
        )

    @property
    def live(self) -> tuple[int, ...]:
        """The indices of all that change."""
        return (*self.trainable, *(i for i, _ in self.statistics), *self.counters)


def _is_real(variable: Any) -> bool:
    return "float" in str(variable.dtype)


def _is_counter(variable: Any) -> bool:
    return "int" in str(variable.dtype)
