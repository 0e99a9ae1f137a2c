"""Loaded data in the object store, where parts of prepared rows are references to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tune_tf.data.nested import leaves_of, map_nested, num_bytes
from tune_tf.data.node_cache.workload_copies import AttributeChanges
from tune_tf.data.prepare.prepare_actor import FetchedRows
from tune_tf.workload import Data

if TYPE_CHECKING:
    import ray

    from tune_tf.data.prepare.chunk import AssembledRows

TENSOR_ALIGNMENT = 64
"""Bytes; an array that starts elsewhere is copied by TensorFlow in each process."""

_LEAST_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class StoredData:
    """Arrays of ``data`` without their rows, these rows, and the loader's attribute changes.

    An array that lies inside prepared rows is stored as its place in them, so that a node holds
    one copy. An array that TensorFlow could not read there is stored itself, as are all if they are
    less than half of the prepared rows, of which each node then needs nothing.
    """

    data: Data
    arrays: "Sequence[np.ndarray[Any, Any] | _Place]"
    changes: AttributeChanges

    @classmethod
    def of(
        cls, data: Data, changes: AttributeChanges, fetched: Sequence[FetchedRows]
    ) -> "StoredData":
        """Return the stored form of arrays; ``fetched`` are the rows that their loader prepared."""
        parts = (data.train, data.validation)
        arrays = [leaf for part in parts if part for _, leaf in leaves_of("", part)]
        places: dict[int, _Place] = {}
        for rows in fetched:
            found = ((i, _Place.of(array, rows)) for i, array in enumerate(arrays))
            inside = {i: place for i, place in found if place is not None}
            size = sum(arrays[i].nbytes for i in inside)
            if size >= _LEAST_SHARE * num_bytes(rows.assembled.rows):
                places |= inside
        stored = [places.get(i, leaf) for i, leaf in enumerate(arrays)]
        train, validation = (part and map_nested(lambda leaf: leaf[:0], part) for part in parts)
        return cls(replace(data, train=train, validation=validation), stored, changes)

    def fetch(self) -> Data:
        """Return the data, as read-only views of this node's object store."""
        import ray

        places = [each for each in self.arrays if isinstance(each, _Place)]
        leaves = {
            reference: [leaf for _, leaf in leaves_of("", ray.get(reference).rows)]
            for reference in {place.reference for place in places}
        }
        stored = iter(self.arrays)

        def array(_: Any) -> Any:
            each = next(stored)
            return each.view(leaves[each.reference]) if isinstance(each, _Place) else each

        parts = (self.data.train, self.data.validation)
        train, validation = (part and map_nested(array, part) for part in parts)
        return replace(self.data, train=train, validation=validation)


@dataclass(frozen=True)
class _Place:
    """Place of an array in prepared rows: ``offset`` counts bytes in the leaf of a number."""

    reference: "ray.ObjectRef[AssembledRows]"
    leaf: int
    offset: int
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, array: "np.ndarray[Any, Any]", fetched: FetchedRows) -> "_Place | None":
        """Return the place of an array that TensorFlow can read there; otherwise None."""
        start = array.ctypes.data
        if not array.nbytes or not array.flags.c_contiguous or start % TENSOR_ALIGNMENT:
            return None
        for number, (_, leaf) in enumerate(leaves_of("", fetched.assembled.rows)):
            offset = start - leaf.ctypes.data
            if 0 <= offset <= leaf.nbytes - array.nbytes:
                return cls(fetched.reference, number, offset, array.shape, array.dtype)
        return None

    def view(self, leaves: "Sequence[np.ndarray[Any, Any]]") -> "np.ndarray[Any, Any]":
        """Return the array, given all leaves of the prepared rows."""
        memory = leaves[self.leaf].reshape(-1).view(np.uint8)
        return np.ndarray(self.shape, self.dtype, memory, self.offset)
