"""How long a trial may run, and how hard a scheduler cuts."""

import math
from dataclasses import dataclass

from tune_tf.errors import Fault, InvalidSettingsError


@dataclass(frozen=True)
class Limits:
    """The limits that all schedulers are made with, in iterations.

    Args:
        max_t: Iterations after which a trial is complete; at least 1.
        grace_period: Iterations that a trial is left alone for; from 1 to ``max_t``, both included.
        reduction_factor: One in this many trials goes on at each rung; above 1.

    Raises:
        InvalidSettingsError: Values that are out of range or contradict each other; all at once.
    """

    max_t: int = 100
    grace_period: int = 1
    reduction_factor: float = 3

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = [
            Fault(name, f"must be a whole number of at least 1, not {value!r}")
            for name, value in (("max_t", self.max_t), ("grace_period", self.grace_period))
            if isinstance(value, bool) or not isinstance(value, int) or value < 1
        ]
        if not faults and self.grace_period > self.max_t:
            faults.append(
                Fault(
                    "grace_period",
                    f"{self.grace_period} is more than max_t={self.max_t}: no trial would ever be "
                    "stopped early; lower grace_period or raise max_t",
                )
            )
        factor = self.reduction_factor
        if isinstance(factor, bool) or not isinstance(factor, int | float):
            faults.append(Fault("reduction_factor", f"must be a number above 1, not {factor!r}"))
        elif not 1 < factor < math.inf:
            faults.append(
                Fault(
                    "reduction_factor",
                    f"must be above 1, not {factor!r}: one in reduction_factor trials goes on",
                )
            )
        if faults:
            raise InvalidSettingsError(faults)
