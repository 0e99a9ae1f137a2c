"""Data of a report: the result of a sweep and the learning curves of its trials."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tune_tf import secrets
from tune_tf.errors import UnknownMetricError
from tune_tf.inspection.reported_results import RESULTS, metric_value, read_results
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.report.plots.axis import Axis, Floats, ParameterAxes, metric_axis, parameter_axes
from tune_tf.report.plots.outcome_style import STYLES
from tune_tf.results import SweepResult, TrialResult
from tune_tf.space import flat
from tune_tf.sweep_folder import trial_folder_name


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
    values: Floats
    segments: tuple[CurveSegment, ...] = ()
    trained_s: float = 0.0

    @property
    def end_s(self) -> float:
        """Time of the last report, in seconds since 1970; NaN without one."""
        return self.segments[-1].end_s if self.segments else float("nan")


@dataclass(frozen=True)
class ReportData:
    """Result and learning curves of a sweep.

    Args:
        settings: Text of the sweep file, with secrets masked.
        masked: Function that masks secrets in a text.
    """

    result: SweepResult
    curves: tuple[Curve, ...]
    settings: str = ""
    masked: Callable[[str], str] = secrets.mask_secrets

    @classmethod
    def of(
        cls, result: SweepResult, masked: Callable[[str], str] = secrets.mask_secrets
    ) -> "ReportData":
        """Read the learning curves and settings from the folder of a sweep."""
        try:
            settings = (result.path / "sweep.yaml").read_text(encoding="utf-8")
        except OSError:
            settings = result.config.to_yaml()
        masked = functools.cache(masked)
        metric = result.objective.metric
        curves = tuple(
            read_curve(result.path / trial_folder_name(trial.number) / RESULTS, metric)
            for trial in result.trials
        )
        return cls(result, curves, masked(settings), masked)

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """Trials in order of number."""
        return self.result.trials

    @property
    def objective(self) -> Objective:
        """Leading objective."""
        return self.result.objective

    @property
    def objective_label(self) -> str:
        """Metric of the leading objective and its direction."""
        return label_objective(self.objective)

    @cached_property
    def best(self) -> TrialResult | None:
        """Best trial, or None."""
        try:
            return self.result.best_trial
        except UnknownMetricError:
            return None

    @cached_property
    def best_index(self) -> int | None:
        """Index of the best trial in ``trials``, or None."""
        return None if self.best is None else self.trials.index(self.best)

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether each trial meets the constraints."""
        return np.array([trial.feasible for trial in self.trials], dtype=bool)

    @cached_property
    def values(self) -> Floats:
        """Last value of the leading objective by trial; NaN if not finite."""
        return self.values_of(self.objective)

    def values_of(self, objective: Objective) -> Floats:
        """Return the last value of an objective by trial; NaN if not finite."""
        found = [trial.metrics.get(objective.metric) for trial in self.trials]
        return np.array(
            [float(value) if is_finite(value) else np.nan for value in found],  # type: ignore[arg-type]
            dtype=np.float64,
        )

    @cached_property
    def value_axis(self) -> Axis:
        """Axis of the leading objective."""
        return metric_axis(self.objective_label, self.values)

    @cached_property
    def configs(self) -> tuple[Mapping[str, Any], ...]:
        """Flat config of each trial, without inactive parameters."""
        space = self.result.config.space
        return tuple(flat(space.active(trial.config), space.parameters) for trial in self.trials)

    @cached_property
    def masked_configs(self) -> tuple[Mapping[str, Any], ...]:
        """Flat config of each trial, without inactive parameters, with secrets masked."""
        return tuple(_masked(config, self.masked) for config in self.configs)

    def cause(self, trial: TrialResult) -> str:
        """Return the cause of a trial's outcome, with secrets masked; empty if unknown."""
        return self.masked(trial.cause) if trial.cause else ""

    @cached_property
    def axes(self) -> ParameterAxes:
        """Axes of the searched parameters."""
        return parameter_axes(self.result.config.space, self.configs, masked=self.masked)

    @property
    def groups(self) -> list[tuple[Outcome | None, list[int]]]:
        """Indices of the trials by outcome, in drawing order."""
        found: dict[Outcome | None, list[int]] = {outcome: [] for outcome in STYLES}
        for index, trial in enumerate(self.trials):
            found[trial.outcome].append(index)
        return [(outcome, indices) for outcome, indices in found.items() if indices]

    @cached_property
    def start_s(self) -> float:
        """Start of the first trial, in seconds since 1970; NaN if unknown."""
        starts = [curve.segments[0].start_s for curve in self.curves if curve.segments]
        return min(starts, default=float("nan"))

    @cached_property
    def end_times(self) -> Floats:
        """End of each trial, in seconds since ``start_s``; NaN if unknown."""
        return np.array([curve.end_s for curve in self.curves], dtype=np.float64) - self.start_s

    @cached_property
    def wall_s(self) -> float:
        """Seconds from the first start to the last report; NaN if unknown."""
        known = self.end_times[~np.isnan(self.end_times)]
        return float(known.max()) if len(known) else float("nan")

    @cached_property
    def best_so_far(self) -> tuple[Floats, Floats]:
        """End times and values of the trials that improved on the best value.

        Only completed, feasible trials count, or all feasible ones if none completed.
        """
        pool = [
            index
            for index in np.argsort(self.end_times, kind="stable")
            if self.feasible[index] and not np.isnan(self.values[index] + self.end_times[index])
        ]
        completed = [i for i in pool if self.trials[i].outcome is Outcome.COMPLETED]
        times: list[float] = []
        values: list[float] = []
        for index in completed or pool:
            value = float(self.values[index])
            if not values or self.objective.better(value, values[-1]):
                times.append(float(self.end_times[index]))
                values.append(value)
        return np.array(times, dtype=np.float64), np.array(values, dtype=np.float64)

    @cached_property
    def ranking(self) -> tuple[int, ...]:
        """Indices of all trials, best first."""

        def key(index: int) -> tuple[bool, bool, bool, float, int]:
            trial, value = self.trials[index], float(self.values[index])
            sign = -1 if self.objective.mode == "max" else 1
            return (
                np.isnan(value),
                not trial.feasible,
                trial.outcome is not Outcome.COMPLETED,
                0.0 if np.isnan(value) else sign * value,
                trial.number,
            )

        return tuple(sorted(range(len(self.trials)), key=key))


def label_objective(objective: Objective) -> str:
    """Return the metric of an objective and its direction."""
    way = "higher" if objective.mode == "max" else "lower"
    return f"{objective.metric} ({way} is better)"


def _masked(value: Any, masked: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {name: _masked(each, masked) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_masked(each, masked) for each in value)
    return value


def read_curve(path: Path, metric: str) -> Curve:
    """Read the learning curve from a ``result.json``; empty if the file cannot be read.

    Truncated lines, as a killed driver leaves them, are skipped. The path of a nested metric is
    written like ``val/loss``.
    """
    values: dict[int, float] = {}
    segments: list[CurveSegment] = []
    since = trained_s = 0.0
    for report in read_results(path):
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
