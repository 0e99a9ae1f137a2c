"""Preparation of records, and its picklable form for worker processes."""

import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tune_tf.data.digest import digest
from tune_tf.data.nested import Nested
from tune_tf.data.prepare.chunk import Chunk, chunks
from tune_tf.errors import WorkloadError

_CHUNKS_A_WORKER = 8
_MAX_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Preparation:
    """Records and the function that makes a row of each.

    Args:
        stop_at_failure: Whether to stop at a record without a row.
        version: Distinguishes contents beyond records and function.
    """

    records: Sequence[Any]
    fn: Callable[[Any], Nested]
    stop_at_failure: bool
    version: str = ""

    def here(self) -> Iterator[Chunk]:
        """Prepare the records in this process, in order."""
        return chunks(0, self.records, self.fn, stop_at_failure=self.stop_at_failure)

    def key(self) -> str:
        """Return the identifier of the content, the same in every process.

        If the function or a record cannot be compared, every call returns a new one.
        """
        content_digest = digest((self.fn, self.stop_at_failure, self.version, self.records))
        return uuid.uuid4().hex if content_digest is None else content_digest.hex()

    def packed(self, num_workers: int) -> "PackedPreparation":
        """Return the picklable form, in chunks for a number of workers."""
        share = -(-len(self.records) // (num_workers * _CHUNKS_A_WORKER))
        size = min(max(share, 1), _MAX_CHUNK)
        starts = range(0, len(self.records), size)
        return PackedPreparation(
            fn=PackedFunction(pickled("the function", self.fn), digest(self.fn)),
            starts=tuple(starts),
            chunks=tuple(
                pickled(f"one of the records from {start} on", self.records[start : start + size])
                for start in starts
            ),
            num_records=len(self.records),
            stop_at_failure=self.stop_at_failure,
        )


class ChangedFunctionError(WorkloadError):
    """A function that differs from that of the sending process, which should call it itself."""


@dataclass(frozen=True)
class PackedFunction:
    """Pickled function with a digest that detects changes on unpickling."""

    content: bytes
    content_digest: bytes | None

    def unpacked(self) -> Callable[[Any], Nested]:
        """Return the function.

        Raises:
            ChangedFunctionError: The module, imported again here, has other code or global values.
        """
        fn: Callable[[Any], Nested] = pickle.loads(self.content)  # noqa: S301  of the same job
        if self.content_digest is not None and digest(fn) != self.content_digest:
            raise ChangedFunctionError(f"{fn!r} differs from that in the requesting process")
        return fn


@dataclass(frozen=True, eq=False)
class PackedPreparation:
    """Picklable preparation whose chunks are unpickled only where they are needed.

    Args:
        starts: Number of the first record of each chunk.
        chunks: Pickled lists of consecutive records.
    """

    fn: PackedFunction
    starts: tuple[int, ...]
    chunks: tuple[bytes, ...]
    num_records: int
    stop_at_failure: bool

    def after(self, num_chunks: int) -> "PackedPreparation":
        """Return the preparation without its first chunks."""
        return replace(self, starts=self.starts[num_chunks:], chunks=self.chunks[num_chunks:])


def pickled(name: str, value: Any) -> bytes:
    """Pickle a value, including one defined in a script, for other processes.

    Raises:
        WorkloadError: The value cannot be pickled.
    """
    from ray import cloudpickle  # unlike pickle, it supports functions defined in a script

    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise WorkloadError(
            f"{name} cannot be sent to the processes that prepare data "
            f"({type(error).__name__}: {error}): use plain values, and a function that holds no "
            "open file, lock or tensor"
        ) from error
    return content
