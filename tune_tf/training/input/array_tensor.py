"""Tensors of arrays that must not change, without a copy."""

from typing import Any

import numpy as np
import tensorflow as tf

_ALIGNED = 64  # bytes; TensorFlow's kernels read from such addresses only


def tensor_of(array: Any) -> tf.Tensor:
    """Return a tensor on the CPU with the values of an array.

    It lies where the array lies if that is read-only, as arrays in Ray's object store are, and a
    copy otherwise: nobody can change a tensor by changing an array.
    """
    if not isinstance(array, np.ndarray) or array.flags.writeable:
        return tf.constant(array)
    if not array.flags.c_contiguous or array.ctypes.data % _ALIGNED or array.dtype.kind in "SUOV":
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(np.asarray(_Exportable(array)).__dlpack__())


class _Exportable:
    """An array's memory as NumPy exports it: DLPack cannot tell that it is read-only."""

    def __init__(self, array: "np.ndarray[Any, Any]") -> None:
        self._array = array  # kept for as long as the tensor is
        self.__array_interface__ = {
            **array.__array_interface__,
            "data": (array.ctypes.data, False),
        }
