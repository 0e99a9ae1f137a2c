"""Seeds for all random draws of a trial, derived from one number."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

# Streams of one seed.
_ORDER, _EXAMPLES, _TENSORFLOW = 1, 2, 3


def derive_seed(sweep_seed: int, trial_number: int) -> int:
    """Return the seed of a trial, below 2**32 and unrelated to those of other trial numbers."""
    return int(np.random.SeedSequence([sweep_seed, trial_number]).generate_state(1)[0])


def seed_python_and_numpy(seed: int) -> None:
    """Seed Python and NumPy, from which Keras draws the seeds of its layers.

    TensorFlow's global seed stays unset, because setting it clears the kernel caches, which costs
    every later trial of the process 0.1 s.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  Keras and user code draw from the global state


@contextlib.contextmanager
def preserve_global_rng() -> Iterator[None]:
    """Restore the global generators of Python and NumPy on exit."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


@contextlib.contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and TensorFlow; restore their seeds on exit.

    ``tf.data`` transformations that are created without a seed, such as ``shuffle``, follow from
    TensorFlow's global seed.
    """
    import tensorflow as tf  # late: seeds are derived where it is not loaded

    from tune_tf.training.keras_internals import global_seed

    before = global_seed()
    with preserve_global_rng():
        seed_python_and_numpy(seed)
        tf.random.set_seed(seed % 2**32)
        try:
            yield
        finally:
            tf.random.set_seed(before)


def epoch_order(
    seed: int, epoch: int, num_rows: int
) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """Return the shuffled row numbers of an epoch, int32, shape ``[num_rows]``."""
    generator = np.random.default_rng([seed, _ORDER, epoch])
    return generator.permutation(num_rows).astype(np.int32)


def tensorflow_seed(seed: int) -> int:
    """Return the global seed of TensorFlow in a trial, below 2**32 and no seed of any trial."""
    return int(np.random.SeedSequence([seed, _TENSORFLOW, 0]).generate_state(1)[0])


def example_seeds(seed: int, epoch: int) -> "np.ndarray[tuple[int, int], np.dtype[np.int32]]":
    """Return the seeds of per-example preprocessing in an epoch, int32, shape ``[2, 2]``.

    The first is for training, the second for validation and equal in all epochs.
    """
    drawn = [
        np.random.SeedSequence([seed, _EXAMPLES, *more]).generate_state(2)
        for more in ([1, epoch], [2])
    ]
    return np.stack(drawn).astype(np.uint32).view(np.int32)


def value_in_replica(variable: Any, value: Any, replica: int) -> Any:
    """Return the value that a variable of a model has in a replica, given that of the first one.

    States of random generators differ, so that replicas draw different numbers.
    """
    if variable.name != "seed_generator_state":
        return value
    return value + np.array([replica, 0], variable.dtype)
