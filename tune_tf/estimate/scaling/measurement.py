"""Measurement of a scaling candidate."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tune_tf.estimate.scaling.candidates import ScalingCandidate


@dataclass(frozen=True)
class Measurement:
    """Training speed and resource usage of a candidate.

    Args:
        batch_size: Rows of a global batch.
        num_rows: Rows per epoch.
        rates: Training rows per second, by round.
        reference_rates: Training rows per second of one device in the same rounds.
        start_s: Seconds from a fresh process to the end of the first epoch, including tracing.
        memory_bytes: Peak memory of its processes on this machine; None if unknown.
        gpu_memory_bytes: GPU memory of its processes on this machine; None without GPUs.
        busy_cores: CPU seconds per second of its processes on this machine.
        other_cores: CPU seconds per second of all other processes in that time.
        input_share: Share of an epoch that the loop takes without a model; None if not measured.
        error: Reason why it could not be measured, or empty.
    """

    candidate: ScalingCandidate
    batch_size: int = 0
    num_rows: int = 0
    rates: tuple[float, ...] = ()
    reference_rates: tuple[float, ...] = ()
    start_s: float = 0.0
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    busy_cores: float | None = None
    other_cores: float = 0.0
    input_share: float | None = None
    error: str = ""

    @property
    def rows_per_s(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rates)

    @property
    def noise(self) -> float:
        """Relative spread of the rounds around their median."""
        return _spread(self.rates) / self.rows_per_s

    @property
    def speed_up(self) -> float:
        """Median rate divided by that of one device in the same rounds."""
        return self.rows_per_s / statistics.median(self.reference_rates)

    @property
    def doubt(self) -> float:
        """Spread of the speed-ups of single rounds."""
        pairs = zip(self.rates, self.reference_rates, strict=True)
        return _spread([rate / reference for rate, reference in pairs])

    @property
    def efficiency(self) -> float:
        """Speed-up divided by the number of devices."""
        return self.speed_up / self.candidate.num_devices

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
        candidate = self.candidate
        values: dict[str, Any] = {
            "what": candidate.label,
            "dimension": candidate.dimension,
            "kind": candidate.parallelism.kind,
            "num_devices": candidate.num_devices,
            "batch_scale": candidate.batch_scale,
            "data_fraction": candidate.data_fraction,
        }
        if self.error:
            return values | {"error": self.error}
        return values | {
            "batch_size": self.batch_size,
            "num_rows": self.num_rows,
            "rows_per_s": self.rows_per_s,
            "rates": list(self.rates),
            "speed_up": self.speed_up,
            "efficiency": self.efficiency if candidate.dimension == "devices" else None,
            "start_s": self.start_s,
            "memory_bytes": self.memory_bytes,
            "gpu_memory_bytes": self.gpu_memory_bytes,
            "busy_cores": self.busy_cores,
            "other_cores": self.other_cores,
            "input_share": self.input_share,
        }


def _spread(values: Sequence[float]) -> float:
    """Return 1.5 times the median absolute deviation, which is robust to outliers.

    For a normal distribution this is about the standard deviation.
    """
    middle = statistics.median(values)
    return 1.5 * statistics.median(abs(value - middle) for value in values)
