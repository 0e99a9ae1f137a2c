"""Scalar hyperparameters of a compiled model that a traced program can read at every call."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import keras

from tune_tf.training.keras_internals import learning_rate_attribute

_OPTIMIZER = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm")
_ADAM = ("beta_1", "beta_2", "epsilon", *_OPTIMIZER)

# Looked up by exact class, since a subclass may use its attributes in other ways.
_TRACEABLE: dict[type, tuple[str, ...]] = {
    keras.optimizers.SGD: ("momentum", *_OPTIMIZER),
    keras.optimizers.RMSprop: ("rho", "momentum", "epsilon", *_OPTIMIZER),
    keras.optimizers.Adam: _ADAM,
    keras.optimizers.AdamW: _ADAM,
    keras.optimizers.Nadam: _ADAM,
    keras.optimizers.Adamax: _ADAM,
    keras.optimizers.Lion: ("beta_1", "beta_2", *_OPTIMIZER),
    keras.optimizers.Adagrad: ("epsilon", *_OPTIMIZER),
    keras.optimizers.Adadelta: ("rho", "epsilon", *_OPTIMIZER),
    keras.optimizers.schedules.ExponentialDecay: ("initial_learning_rate", "decay_rate"),
    keras.optimizers.schedules.CosineDecay: ("initial_learning_rate", "alpha", "warmup_target"),
    keras.optimizers.schedules.PolynomialDecay: ("initial_learning_rate", "end_learning_rate"),
    keras.optimizers.schedules.InverseTimeDecay: ("initial_learning_rate", "decay_rate"),
    keras.layers.Dropout: ("rate",),
    keras.layers.SpatialDropout1D: ("rate",),
    keras.layers.SpatialDropout2D: ("rate",),
    keras.layers.SpatialDropout3D: ("rate",),
    keras.layers.GaussianNoise: ("stddev",),
    keras.regularizers.L1: ("l1",),
    keras.regularizers.L2: ("l2",),
    keras.regularizers.L1L2: ("l1", "l2"),
}

LearningRate = float | list[float | None] | None
"""Learning rate, None for a schedule; a list for a MultiOptimizer."""


class Scalar(NamedTuple):
    """Float attribute of an optimizer, schedule, layer or regularizer (the ``owner``)."""

    owner: Any
    attribute: str

    @property
    def value(self) -> float:
        """Current value as a Python float."""
        return float(getattr(self.owner, self.attribute))


def inner_optimizer(model: keras.Model) -> Any:
    """Return the model's optimizer without a LossScaleOptimizer around it."""
    optimizer = model.optimizer
    return getattr(optimizer, "inner_optimizer", optimizer)


def optimizers_of(model: keras.Model) -> list[Any]:
    """Return the model's optimizer, or all optimizers of a MultiOptimizer."""
    optimizer = inner_optimizer(model)
    if not has_several_optimizers(model):
        return [optimizer]
    if not optimizer.built:  # building may create the optimizers
        optimizer.build(model.trainable_variables)
    return list(optimizer.optimizers)


def learning_rate(model: keras.Model) -> LearningRate:
    """Return the model's current learning rate."""
    rates = [
        float(optimizer.learning_rate.numpy())
        if isinstance(learning_rate_attribute(optimizer), keras.Variable)
        else None
        for optimizer in optimizers_of(model)
    ]
    return rates if has_several_optimizers(model) else rates[0]


def set_learning_rate(model: keras.Model, value: LearningRate) -> None:
    """Set the model's learning rate; None changes nothing."""
    rates = value if isinstance(value, list) else [value]
    for optimizer, rate in zip(optimizers_of(model), rates, strict=True):
        if rate is not None:
            optimizer.learning_rate = rate


def has_several_optimizers(model: keras.Model) -> bool:
    """Return whether the model's optimizer is a MultiOptimizer."""
    return isinstance(inner_optimizer(model), keras.optimizers.MultiOptimizer)


def scalars_of(model: keras.Model) -> list[Scalar]:
    """Return a model's traceable scalars, in an order that models of one structure share.

    Zero and None are part of the structure instead, since they disable code.
    """
    return [
        Scalar(owner, attribute)
        for owner in _owners(model)
        for attribute in _TRACEABLE[type(owner)]
        if _is_traceable(getattr(owner, attribute))
    ]


def _is_traceable(value: Any) -> bool:
    if value is None or isinstance(value, bool | int):
        return False
    try:
        return float(value) > 0
    except (TypeError, ValueError):
        return False


def _owners(model: keras.Model) -> list[Any]:
    """Return the objects of a model that have traceable scalars, each once."""
    # A plain learning rate is in a variable and needs no tracing.
    groups = [(each, learning_rate_attribute(each)) for each in optimizers_of(model)]
    groups += [(layer, *vars(layer).values()) for layer in model_layers(model)]
    found = {id(each): each for group in groups for each in group if type(each) in _TRACEABLE}
    return list(found.values())


def model_layers(model: keras.Model) -> Iterator[keras.Layer]:
    """Yield the layers of a model and of its nested models."""
    for layer in model.layers:
        yield layer
        if isinstance(layer, keras.Model):
            yield from model_layers(layer)
