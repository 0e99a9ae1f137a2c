"""What a sweep really took."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tune_tf.inspection.reported_results import RESULTS, last_report, metric_value
from tune_tf.result_keys import PEAK_MEMORY
from tune_tf.results import SweepResult


@dataclass(frozen=True)
class Actuals:
    """What a sweep really took.

    Args:
        wall_s: Seconds from the call of ``run_sweep`` on, all sessions together.
        trials: Trials that were started.
        epochs: Iterations of all trials.
        memory_bytes: Most memory that a trial has told of; None where none has.
        disk_bytes: Size of the sweep's folder.
        closed: Whether report and best model are counted.
    """

    wall_s: float
    trials: int
    epochs: int
    memory_bytes: float | None
    disk_bytes: int
    closed: bool

    @classmethod
    def of(cls, result: SweepResult, wall_s: float, *, closed: bool) -> "Actuals":
        """Return what a sweep took, by its folder.

        Args:
            result: What it found.
            wall_s: How long it took.
            closed: Whether report and best model have been written.
        """
        told = (
            metric_value(
                last_report(result.path / f"trial_{trial.number:05d}" / RESULTS), PEAK_MEMORY
            )
            for trial in result.trials
        )
        return cls(
            wall_s=wall_s,
            trials=len(result.trials),
            epochs=sum(trial.iterations for trial in result.trials),
            memory_bytes=max(
                (each for each in told if isinstance(each, int | float)), default=None
            ),
            disk_bytes=_size(result.path),
            closed=closed,
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Actuals":
        """Return what :meth:`to_dict` wrote."""
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def _size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
