"""The CPUs and GPUs that one trial reserves."""

from dataclasses import dataclass

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class TrialResources:
    """What Ray sets aside for one trial, for as long as it runs.

    Args:
        cpus: CPU cores, at least 1 and whole: TensorFlow's threads are set to it.
        gpus: GPUs; a whole number, or a fraction below 1 to share one card.

    Raises:
        InvalidSettingsError: A number is negative, not finite, or a GPU share above 1 is not whole.
    """

    cpus: int = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = []
        if isinstance(self.cpus, bool) or not isinstance(self.cpus, int) or self.cpus < 1:
            faults.append(f"cpus must be a whole number of at least 1, not {self.cpus!r}")
        if isinstance(self.gpus, bool) or not isinstance(self.gpus, int | float):
            faults.append(f"gpus must be a number, not {self.gpus!r}")
        elif not 0 <= self.gpus < float("inf"):
            faults.append(f"gpus must be 0 or more, not {self.gpus!r}")
        elif self.gpus > 1 and self.gpus != int(self.gpus):
            faults.append(
                f"gpus must be whole above 1, not {self.gpus!r}: Ray shares a single card in "
                "fractions, but never one card and a part of another"
            )
        if faults:
            raise InvalidSettingsError(faults)

    @property
    def bundle(self) -> dict[str, float]:
        """The placement-group bundle of a process that has all of this."""
        return {"CPU": float(self.cpus)} | ({"GPU": float(self.gpus)} if self.gpus else {})
