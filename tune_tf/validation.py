"""Validation settings of a trial."""

from dataclasses import dataclass

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class Validation:
    """When validation rows are evaluated.

    Args:
        asynchronous: Whether a snapshot of the weights is evaluated on the CPU while the next epoch
            trains. Results are the same and in the same order. Callbacks are notified of the end
            of an epoch once the next one has been trained. It pays off where training uses GPUs
            or leaves CPUs of the trial idle.

    Raises:
        InvalidSettingsError: A value is not allowed.
    """

    asynchronous: bool = False

    def __post_init__(self) -> None:
        """Validate the value."""
        if not isinstance(self.asynchronous, bool):
            raise InvalidSettingsError(
                f"asynchronous must be true or false, not {self.asynchronous!r}"
            )
