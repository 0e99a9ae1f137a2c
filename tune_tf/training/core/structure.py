"""Fingerprint that decides which trials share a traced program."""

from collections.abc import Hashable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tune_tf.training.core.scalars import Scalar
from tune_tf.training.core.step import trains_by_workload
from tune_tf.training.reuse.fingerprint import Fingerprint, fingerprint, method_dependencies
from tune_tf.workload import Config, Workload


def program_fingerprint(
    workload: Workload,
    model: keras.Model,
    scalars: Sequence[Scalar],
    config: Config,
    batch: Hashable = (),
) -> Fingerprint:
    """Return a fingerprint that is equal exactly for trials that can share a traced program.

    It covers the model and everything that it refers to, the workload's ``train_step``,
    ``Workload.structure`` and the settings of Keras and TensorFlow. It excludes values that a
    program reads for each trial: variables, seeds of random generators and traced scalars.
    Automatic names must be counted from zero (see ``build.py``).

    ``batch`` holds other constants of the trace: data shapes and types, batch size, replicas.
    """
    step = method_dependencies(workload, "train_step") if trains_by_workload(workload) else ()
    roots = [model, step, workload.structure(config), repr(batch), _settings()]
    return fingerprint(roots, [(scalar.owner, scalar.attribute) for scalar in scalars])


def _settings() -> tuple[Any, ...]:
    return (
        keras.config.floatx(),
        keras.config.epsilon(),
        keras.config.image_data_format(),
        keras.config.dtype_policy().name,
        keras.config.is_flash_attention_enabled(),
        tf.config.optimizer.get_jit(),
        tf.config.experimental.tensor_float_32_execution_enabled(),
    )
