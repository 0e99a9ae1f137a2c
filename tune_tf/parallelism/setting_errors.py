"""Checks of the settings that several kinds of parallelism share."""

from typing import Literal, Protocol, get_args

from tune_tf.errors import one_of

Placement = Literal["pack", "spread", "strict_spread"]
"""Where the workers of a trial go: close together, apart where possible, or never on one node."""

Uneven = Literal["split", "refuse"]


class Splitting(Protocol):
    """How replicas take their parts of a batch."""

    @property
    def micro_batches(self) -> int:
        """Pieces of a part."""

    @property
    def synchronized_batch_norm(self) -> bool:
        """Whether statistics are those of all replicas."""

    @property
    def uneven(self) -> Uneven:
        """What becomes of a batch that does not divide."""


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
    """Return the error in a setting that must be a whole number of at least 1."""
    value = getattr(spread, name)
    return (
        [] if is_count(value) else [f"{name} must be a whole number of at least 1, not {value!r}"]
    )


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
