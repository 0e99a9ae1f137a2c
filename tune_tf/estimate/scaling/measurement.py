"""What was measured of a candidate."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tune_tf.estimate.scaling.candidates import ScalingCandidate


@dataclass(frozen=True)
class Measurement:
    """How fast a candidate trained, and what it took.

    Args:
        candidate: What was measured.
        batch_size: Rows of a global batch.
        num_rows: Rows of an epoch.
        rates: Training rows a second of each round.
        reference_rates: Those of one device in the same rounds.
        start_s: Seconds from a fresh process to the end of the first epoch, which is traced.
        memory_bytes: Most memory of its processes on this machine; None where it is not known.
        gpu_memory_bytes: GPU memory of its processes on this machine; None without GPUs.
        busy_cores: CPU seconds a second of its processes on this machine.
        other_cores: Those of all other processes meanwhile.
        input_share: Part of an epoch that the same loop takes without a model; None where it was
            not measured.
        error: Why it could not be measured; empty where it was.
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
        """How far rounds lie from their median, over it."""
        return _spread(self.rates) / self.rows_per_s

    @property
    def speed_up(self) -> float:
        """Rows a second over those of one device in the same rounds, both as medians."""
        return self.rows_per_s / statistics.median(self.reference_rates)

    @property
    def doubt(self) -> float:
        """How far the speed-ups of single rounds lie from each other."""
        pairs = zip(self.rates, self.reference_rates, strict=True)
        return _spread([rate / reference for rate, reference in pairs])

    @property
    def efficiency(self) -> float:
        """Speed-up over the number of devices."""
        return self.speed_up / self.candidate.num_devices

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
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
    """Return one and a half times the median distance from the median, which outliers leave alone.

    Of numbers from a normal distribution it is about its standard deviation.
    """
    middle = statistics.median(values)
    return 1.5 * statistics.median(abs(value - middle) for value in values)
