"""CPUs and GPUs of a trial."""

from collections.abc import Mapping
from dataclasses import dataclass

from tune_tf.errors import InvalidSettingsError


@dataclass(frozen=True)
class TrialResources:
    """Resources that Ray reserves for a running trial.

    Args:
        cpus: CPU cores, an integer of at least 1; also the number of TensorFlow's threads.
        gpus: GPUs; an integer, or a fraction below 1 to share a GPU.

    Raises:
        InvalidSettingsError: A number is invalid; lists all errors.
    """

    cpus: int = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        """Validate the values."""
        errors = []
        if isinstance(self.cpus, bool) or not isinstance(self.cpus, int) or self.cpus < 1:
            errors.append(f"cpus must be an integer of at least 1, not {self.cpus!r}")
        if isinstance(self.gpus, bool) or not isinstance(self.gpus, int | float):
            errors.append(f"gpus must be a number, not {self.gpus!r}")
        elif not 0 <= self.gpus < float("inf"):
            errors.append(f"gpus must be 0 or more, not {self.gpus!r}")
        elif self.gpus > 1 and self.gpus != int(self.gpus):
            errors.append(
                f"gpus above 1 must be an integer, not {self.gpus!r}: Ray shares a single card in "
                "fractions, but never one card and a part of another"
            )
        if errors:
            raise InvalidSettingsError(errors)

    @classmethod
    def of_bundle(cls, bundle: Mapping[str, float]) -> "TrialResources":
        """Return the resources of a process in a placement-group bundle."""
        return cls(cpus=max(1, int(bundle.get("CPU", 1))), gpus=bundle.get("GPU", 0))

    @property
    def bundle(self) -> dict[str, float]:
        """Placement-group bundle of a process that has all of it."""
        return {"CPU": float(self.cpus)} | ({"GPU": float(self.gpus)} if self.gpus else {})
