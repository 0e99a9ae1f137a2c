"""How a trial validates."""

from dataclasses import dataclass

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class Validation:
    """When the validation rows are evaluated.

    Args:
        asynchronous: Whether a snapshot of the weights is evaluated on the CPU while the next epoch
            is trained already. Each iteration reports the same numbers as without, in order.
            Callbacks hear of an epoch's end when the next one has been trained. It pays where
            training is on GPUs, or leaves CPUs of the trial idle.

    Raises:
        InvalidSettingsError: A value is not allowed.
    """

    asynchronous: bool = False

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        if not isinstance(self.asynchronous, bool):
            raise InvalidSettingsError(
                [f"asynchronous must be true or false, not {self.asynchronous!r}"]
            )
