"""Zero-copy tensors of read-only arrays."""

from typing import Any

import numpy as np
import tensorflow as tf

from tune_tf.data.node_store import TENSOR_ALIGNMENT


def tensor_of(array: Any) -> tf.Tensor:
    """Return a CPU tensor with the values of an array.

    It shares the memory of a read-only array, such as one of the node's store, and copies any
    other, so that later changes of an array never change the tensor.
    """
    if not isinstance(array, np.ndarray) or array.flags.writeable:
        return tf.constant(array)
    if (
        not array.flags.c_contiguous
        or array.ctypes.data % TENSOR_ALIGNMENT
        or array.dtype.kind in "SUOV"
    ):
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(np.asarray(_Exportable(array)).__dlpack__())


class _Exportable:
    """Array memory marked as writable: NumPy refuses DLPack export of read-only arrays."""

    def __init__(self, array: "np.ndarray[Any, Any]") -> None:
        self._array = array  # keeps the memory alive as long as the tensor
        self.__array_interface__ = {
            **array.__array_interface__,
            "data": (array.ctypes.data, False),
        }
