"""Validation of settings shared by several kinds of parallelism."""

from typing import Literal, Protocol, get_args

from tune_tf.errors import one_of

Placement = Literal["pack", "spread", "strict_spread"]
"""Placement of a trial's workers: on few nodes, on many nodes, or each on a separate node."""

Uneven = Literal["split", "refuse"]


class Splitting(Protocol):
    """Protocol of the settings that split a batch over replicas."""

    @property
    def micro_batches(self) -> int:
        """Pieces of a replica's part of a batch."""

    @property
    def synchronized_batch_norm(self) -> bool:
        """Whether batch statistics cover all replicas."""

    @property
    def uneven(self) -> Uneven:
        """Treatment of a batch that does not divide by the replicas."""


def step_errors(spread: "Splitting") -> list[str]:
    """Return the errors in the settings of a training step."""
    errors = count_errors(spread, "micro_batches")
    if not isinstance(spread.synchronized_batch_norm, bool):
        errors.append(
            f"synchronized_batch_norm must be true or false, not {spread.synchronized_batch_norm!r}"
        )
    if spread.uneven not in get_args(Uneven):
        errors.append(f"uneven must be {one_of(get_args(Uneven))}, not {spread.uneven!r}")
    return errors


def count_errors(spread: object, name: str) -> list[str]:
    """Return the error of a setting that must be a whole number of at least 1."""
    value = getattr(spread, name)
    return [] if is_count(value) else [f"{name} must be an integer of at least 1, not {value!r}"]


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
