"""What is to be prepared, in the form that travels to the processes that do it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tune_tf.data.nested import Nested
from tune_tf.data.portion import Portion, portions
from tune_tf.errors import WorkloadError

_CHUNKS_A_WORKER = 8
_MAX_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Preparation:
    """Records and the function that gives a row for each.

    Args:
        records: What ``fn`` takes, one at a time.
        fn: Gives the row of a record.
        stop_at_failure: Whether a record without a row ends it.
        version: Tells contents apart that records and function do not.
    """

    records: Sequence[Any]
    fn: Callable[[Any], Nested]
    stop_at_failure: bool
    version: str = ""

    def here(self) -> Iterator[Portion]:
        """Prepare the records in this process, one after another."""
        return portions(0, self.records, self.fn, stop_at_failure=self.stop_at_failure)

    def key(self) -> str:
        """Return the name of this content: the same in every process that asks for the same.

        Raises:
            WorkloadError: The function or a record cannot be pickled.
        """
        digest = hashlib.sha256(pickled("the function", self.fn))
        digest.update(f"{self.stop_at_failure} {self.version!r} {len(self.records)}".encode())
        # Each by itself: a pickle of several objects tells also which of them are one and the
        # same object, which differs between processes.
        for number, record in enumerate(self.records):
            content = pickled(f"record {number}", record)
            digest.update(len(content).to_bytes(8, "little"))
            digest.update(content)
        return digest.hexdigest()

    def packed(self, num_workers: int) -> "PackedPreparation":
        """Return this in chunks for so many workers."""
        share = -(-len(self.records) // (num_workers * _CHUNKS_A_WORKER))
        size = min(max(share, 1), _MAX_CHUNK)
        starts = range(0, len(self.records), size)
        return PackedPreparation(
            fn=pickled("the function", self.fn),
            starts=tuple(starts),
            chunks=tuple(
                pickled(f"one of the records from {start} on", self.records[start : start + size])
                for start in starts
            ),
            num_records=len(self.records),
            stop_at_failure=self.stop_at_failure,
        )


@dataclass(frozen=True, eq=False)
class PackedPreparation:
    """A preparation whose parts only the processes that need them unpack.

    Args:
        fn: The pickled function.
        starts: Number of the first record of each chunk.
        chunks: Pickled lists of consecutive records.
        num_records: In all chunks.
        stop_at_failure: Whether a record without a row ends it.
    """

    fn: bytes
    starts: tuple[int, ...]
    chunks: tuple[bytes, ...]
    num_records: int
    stop_at_failure: bool

    def after(self, num_chunks: int) -> "PackedPreparation":
        """Return what is left after the first chunks."""
        return replace(self, starts=self.starts[num_chunks:], chunks=self.chunks[num_chunks:])


def pickled(name: str, value: Any) -> bytes:
    """Return a value in the form in which it goes to other processes.

    Args:
        name: Of the value, for messages.
        value: Anything, also what is defined in a script.

    Raises:
        WorkloadError: It cannot be pickled.
    """
    from ray import cloudpickle  # unlike pickle it knows what is defined in a script

    try:
        content: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise WorkloadError(
            f"{name} cannot be sent to the processes that prepare data "
            f"({type(error).__name__}: {error}): use plain values, and a function that holds no "
            "open file, lock or tensor"
        ) from error
    return content
