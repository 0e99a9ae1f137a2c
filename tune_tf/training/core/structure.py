"""What makes two compiled models one traced program."""

from collections.abc import Hashable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tune_tf.training.core.scalars import Scalar
from tune_tf.training.core.step import trains_by_workload
from tune_tf.training.reuse.fingerprint import Fingerprint, fingerprint, method_dependencies
from tune_tf.workload import Config, Workload


def structure_of(
    workload: Workload,
    model: keras.Model,
    scalars: Sequence[Scalar],
    config: Config,
    batch: Hashable = (),
) -> Fingerprint:
    """Return a fingerprint that is equal exactly for trials which one traced program can serve.

    It is of the model and all that it refers to, of the workload's ``train_step``, and of the
    settings of Keras and TensorFlow. Left out are values that a program reads anew for each trial:
    those of variables, seeds of random generators, and the carried scalars. Automatic names must
    have been counted from zero (see ``build.py``).

    Args:
        workload: Whose model.
        model: Compiled and built.
        scalars: The scalars that the program will carry.
        config: The trial's values, which ``Workload.structure`` may tell further apart.
        batch: Shapes and types of the data, batch size, replicas: whatever else is traced in.
    """
    step = method_dependencies(workload, "train_step") if trains_by_workload(workload) else ()
    roots = [model, step, workload.structure(config), repr(batch), _settings()]
    return fingerprint(roots, [(scalar.owner, scalar.attribute) for scalar in scalars])


def _settings() -> tuple[Any, ...]:
    """Return the settings of a process that change what is traced."""
    return (
        keras.config.floatx(),
        keras.config.epsilon(),
        keras.config.image_data_format(),
        keras.config.dtype_policy().name,
        keras.config.is_flash_attention_enabled(),
        tf.config.optimizer.get_jit(),
        tf.config.experimental.tensor_float_32_execution_enabled(),
    )
