"""Global state of Python, NumPy, TensorFlow and Keras, which each trial finds as a first one does.

State that the modules of a workload hold is shared by the trials of a process, as in any program.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tune_tf.training.keras_internals import (
    automatic_names,
    before_eager_draws,
    global_seed,
    reset_keras_state,
)
from tune_tf.training.seeds import (
    preserve_global_rng,
    seed_python_and_numpy,
    tensorflow_seed,
)

_SETTINGS: dict[Callable[[], Any], Callable[[Any], None]] = {
    keras.config.floatx: keras.config.set_floatx,
    keras.config.epsilon: keras.config.set_epsilon,
    keras.config.image_data_format: keras.config.set_image_data_format,
    keras.config.dtype_policy: keras.config.set_dtype_policy,
    tf.config.functions_run_eagerly: tf.config.run_functions_eagerly,
    tf.config.optimizer.get_jit: tf.config.optimizer.set_jit,
    tf.config.experimental.tensor_float_32_execution_enabled: (
        tf.config.experimental.enable_tensor_float_32_execution
    ),
}
"""Setter of each process-wide setting, by getter."""


def settings() -> tuple[Any, ...]:
    """Return the process-wide settings of Keras and TensorFlow."""
    return tuple(setting() for setting in _SETTINGS)


@functools.cache
def initial_state() -> tuple[tuple[Any, ...], dict[str, int]]:
    """Return the settings, and Keras' counts of names, of this process at the first call."""
    return settings(), automatic_names()


def begin_trial(seed: int) -> None:
    """Set seeds, settings and counts of names as the first trial of the process finds them."""
    values, names = initial_state()
    for (setting, change), value in zip(_SETTINGS.items(), values, strict=True):
        if setting() != value:
            change(value)
    reset_keras_state(names)
    seed_python_and_numpy(seed)
    _tensorflow.begin_trial(tensorflow_seed(seed))


@contextlib.contextmanager
def seeded_graph() -> Iterator[None]:
    """Seed what is traced for the trial, unless its code has set TensorFlow's global seed.

    The generators of Python and NumPy are then where they were, as if an earlier trial had traced.
    """
    if global_seed() == _tensorflow.active:
        tf.compat.v1.set_random_seed(_tensorflow.of_trial)
    with preserve_global_rng():
        seed_python_and_numpy(_tensorflow.of_trial)
        yield


class _TensorFlowSeed:
    """TensorFlow's global seed, which is set when a trial first draws eagerly.

    Setting it discards all kernels, so that every traced graph of the process takes a tenth of a
    second or more at its next call. Most trials draw by Keras alone, which has its own generators.
    """

    def __init__(self) -> None:
        self.active: int | None = global_seed()  # that was set here
        self.of_trial = 0
        self._is_pending = False
        self._is_lazy = before_eager_draws(self._set)

    def begin_trial(self, seed: int) -> None:
        self.of_trial = seed
        self._is_pending = True
        if not self._is_lazy or global_seed() != self.active:  # code of the last trial has set one
            self.active = global_seed()
            self._set()

    def _set(self) -> None:
        if self._is_pending:
            self._is_pending = False
            if global_seed() == self.active:
                self.active = self.of_trial
                tf.random.set_seed(self.of_trial)


_tensorflow = _TensorFlowSeed()
