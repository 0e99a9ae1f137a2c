"""Learning curves of trials, read from Ray Tune's ``result.json``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tune_tf.inspection.reported_results import metric_value, reports


@dataclass(frozen=True)
class CurveSegment:
    """Uninterrupted run of a trial in one process (host and process id).

    Args:
        start_s: Start, in seconds since 1970; Ray rounds timestamps down to whole seconds.
        end_s: Report of its last iteration, in seconds since 1970.
    """

    process: str
    host: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Curve:
    """Learning curve of one trial.

    Args:
        iterations: Iterations, ascending; of those repeated after a retry, only the last.
        values: Metric of the objective by iteration; NaN if not finite.
        segments: Runs of the trial, in order.
        trained_s: Seconds spent in iterations.
    """

    iterations: NDArray[np.int64]
    values: NDArray[np.float64]
    segments: tuple[CurveSegment, ...] = ()
    trained_s: float = 0.0

    @property
    def end_s(self) -> float:
        """Time of the last report, in seconds since 1970; NaN without one."""
        return self.segments[-1].end_s if self.segments else float("nan")


def read_curve(path: Path, metric: str) -> Curve:
    """Read the learning curve from a ``result.json``; empty if the file cannot be read.

    Truncated lines, as a killed driver leaves them, are skipped. The path of a nested metric is
    written like ``val/loss``.
    """
    values: dict[int, float] = {}
    segments: list[CurveSegment] = []
    since = trained_s = 0.0
    for report in reports(path):
        iteration = _number(report.get("training_iteration"))
        if not np.isfinite(iteration):
            continue
        values[int(iteration)] = _number(metric_value(report, metric))
        trained_s = max(trained_s, np.nan_to_num(_number(report.get("time_total_s"))))
        since = _extend(segments, report, since)
    iterations = sorted(values)
    return Curve(
        np.array(iterations, dtype=np.int64),
        np.array([values[iteration] for iteration in iterations], dtype=np.float64),
        tuple(segments),
        trained_s,
    )


def _extend(segments: list[CurveSegment], report: Mapping[str, Any], before_s: float) -> float:
    """Extend the last segment or append a new one; return the report's ``time_since_restore``."""
    now = _number(report.get("timestamp"))
    since = _number(report.get("time_since_restore"))
    if not (np.isfinite(now) and np.isfinite(since)):
        return before_s
    host = str(report.get("hostname", ""))
    process = f"{host}:{report.get('pid', '')}"
    if segments and segments[-1].process == process and since >= before_s:
        start = segments.pop().start_s
    else:
        start = now - since
    segments.append(CurveSegment(process, host, start, max(now, start + since)))
    return since


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return float("nan")
    return float(value) if np.isfinite(value) else float("nan")
