"""Weight updates that do not depend on the number of replicas.

Keras' optimizer clips in every replica before it sums over the replicas. Here gradients are summed
first.
"""

from typing import Any

import keras

from tune_tf.errors import WorkloadError
from tune_tf.training.keras_internals import skip_sum_over_replicas
from tune_tf.training.replicas.replicas import Replicas
from tune_tf.training.scalars import has_several_optimizers, inner_optimizer, optimizers_of


def prepare_optimizer(model: keras.Model, replicas: Replicas) -> None:
    """Make ``optimizer.apply`` of a built optimizer exact for several replicas.

    It sums the gradients over the replicas before it clips them or looks for infinite ones. Nothing
    changes for a single replica.

    Raises:
        WorkloadError: It cannot be made exact.
    """
    if replicas.num == 1:
        return
    _refuse_inexact(model, replicas.num)
    for optimizer in optimizers_of(model):
        skip_sum_over_replicas(optimizer)
    apply = model.optimizer.apply

    def apply_sum(grads: Any, trainable_variables: Any = None) -> Any:
        return apply(replicas.sum_gradients(list(grads)), trainable_variables)

    model.optimizer.apply = apply_sum


def _refuse_inexact(model: keras.Model, num_replicas: int) -> None:
    """Refuse what Keras' optimizers decide or compute in each replica."""
    several = has_several_optimizers(model)
    found = []
    for optimizer in optimizers_of(model):
        names = ["gradient_accumulation_steps"]
        if optimizer.use_ema:
            names += ["use_ema"] if several else ["ema_overwrite_frequency"]
        settings = ((name, getattr(optimizer, name, None)) for name in names)
        found += [f"{name}={value}" for name, value in settings if value]
    if several and model.optimizer is not inner_optimizer(model):
        found.append("LossScaleOptimizer")
    if found:
        raise WorkloadError(
            f"{type(inner_optimizer(model)).__name__} with {', '.join(found)} cannot be kept exact "
            f"over {num_replicas} replicas: use one replica, or leave that out (in place of "
            "accumulated gradients, use a larger batch with micro_batches)"
        )


def refuse_other_optimizers(model: keras.Model, who: str) -> None:
    """Refuse a model that has optimizers besides the compiled one; ``who`` cannot train it."""
    others = [
        name
        for name, value in vars(model).items()
        if isinstance(value, keras.optimizers.Optimizer) and value is not model.optimizer
    ]
    if others:
        raise WorkloadError(
            f"{type(model).__name__} has optimizers besides the compiled one "
            f"({', '.join(others)}), so {who} cannot train exactly: use one replica"
        )
