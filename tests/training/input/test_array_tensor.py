"""Tensors that lie where a read-only array lies."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tune_tf.training.input.array_tensor import tensor_of

pytestmark = pytest.mark.tf


def aligned(shape, dtype, *, offset=0, writeable=False):
    """Return an array of increasing numbers, so many bytes behind an aligned address."""
    count = int(np.prod(shape))
    size = count * np.dtype(dtype).itemsize
    memory = np.zeros(size + 128, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    array = memory[first : first + size].view(dtype).reshape(shape)
    array[...] = (np.arange(count) % 2).reshape(shape)
    array.flags.writeable = writeable
    return array


def address(tensor):
    return np.asarray(memoryview(tensor)).ctypes.data


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_a_read_only_array_is_not_copied(dtype):
    array = aligned((5, 3), dtype)
    tensor = tensor_of(array)

    assert address(tensor) == array.ctypes.data
    assert tensor.dtype.name == dtype
    np.testing.assert_array_equal(tensor, array)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(aligned((5, 3), "float32", writeable=True), id="one that can be written to"),
        pytest.param(aligned((5, 3), "float32", offset=4), id="one at an odd address"),
        pytest.param(aligned((6, 4), "float32")[:, ::2], id="every second column"),
        pytest.param(aligned((5, 3), "float32").T, id="columns first"),
    ],
)
def test_another_array_is_copied(array):
    tensor = tensor_of(array)

    assert address(tensor) != array.ctypes.data
    np.testing.assert_array_equal(tensor, array)


def test_text_is_copied():
    array = np.array([b"a", b"bc"])
    array.flags.writeable = False

    assert tensor_of(array).numpy().tolist() == [b"a", b"bc"]


def test_the_array_lives_as_long_as_its_tensor():
    class Watched(np.ndarray):
        """An array that can be watched."""

    array = aligned((5, 3), "float32").view(Watched)
    watched = weakref.ref(array)
    with tf.device("CPU:0"):
        tensor = tf.identity(tensor_of(array))
    del array
    gc.collect()
    assert watched() is not None

    del tensor
    gc.collect()
    assert watched() is None
