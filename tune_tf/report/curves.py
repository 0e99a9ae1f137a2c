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
    """Uninterrupted run of a trial in one process.

    Args:
        process: Host and process id.
        host: Name of the host.
        start_s: When it began, in seconds since 1970. Ray rounds times down to whole seconds.
        end_s: When its last iteration was reported.
    """

    process: str
    host: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Curve:
    """The reports of one trial.

    Args:
        iterations: Ascending, each once: of one that was done again after a retry, the last.
        values: The objective's metric at each; NaN where it was not a finite number.
        segments: When and where it ran, in order.
        trained_s: Seconds spent in iterations.
    """

    iterations: NDArray[np.int64]
    values: NDArray[np.float64]
    segments: tuple[CurveSegment, ...] = ()
    trained_s: float = 0.0

    @property
    def end_s(self) -> float:
        """When the last report came, in seconds since 1970; NaN without one."""
        return self.segments[-1].end_s if self.segments else float("nan")


def read_curve(path: Path, metric: str) -> Curve:
    """Read the curve of a ``result.json``; empty if the file cannot be read.

    A line that is not whole, as a killed driver leaves it, is passed over.

    Args:
        path: The file.
        metric: The objective's metric; nested ones by their path, ``val/loss``.
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
    """Lengthen the last segment, or begin one; return how long the trial has run since its start.

    Args:
        segments: Those so far.
        report: The next report.
        before_s: How long it had run, at the report before.
    """
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
