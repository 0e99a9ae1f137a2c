"""What a sweep optimises: a reported metric and a direction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tune_tf.errors import InvalidSettingsError, UnknownMetricError, near_ones


@dataclass(frozen=True)
class Objective:
    """A metric that trials report, and whether a smaller or a larger value is better.

    Args:
        metric: Name as it is reported, for example ``val_accuracy``.
        mode: ``"min"`` or ``"max"``.

    Raises:
        InvalidSettingsError: The name is empty or the mode is neither of the two.
    """

    metric: str
    mode: Literal["min", "max"]

    def __post_init__(self) -> None:
        """Refuse bad values when made."""
        faults = []
        if not isinstance(self.metric, str) or not self.metric:
            faults.append(f"metric must be the name of a reported metric, not {self.metric!r}")
        if self.mode not in ("min", "max"):
            faults.append(f"mode must be 'min' or 'max', not {self.mode!r}")
        if faults:
            raise InvalidSettingsError(faults)

    def better(self, first: float, second: float) -> bool:
        """Return whether ``first`` is strictly better than ``second``."""
        return first > second if self.mode == "max" else first < second

    def value(self, result: Mapping[str, Any]) -> float:
        """Return the metric's value in a result.

        Raises:
            UnknownMetricError: The result does not hold the metric; names those it does.
        """
        if self.metric not in result:
            raise UnknownMetricError(self.missing(result))
        return float(result[self.metric])

    def missing(self, result: Mapping[str, Any]) -> str:
        """Return the text that says the metric is not among a result's."""
        reported = sorted(k for k, v in result.items() if isinstance(v, float | int))
        return (
            f"metric {self.metric!r} is not reported; the trial reports {', '.join(reported)}"
            f"{near_ones(self.metric, reported)}"
        )
