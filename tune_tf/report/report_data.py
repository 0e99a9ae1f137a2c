"""Data of a report: the result of a sweep and the learning curves of its trials."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tune_tf.inspection.reported_results import RESULTS, metric_value, read_results
from tune_tf.objective import Objective
from tune_tf.outcome import Outcome, is_finite
from tune_tf.report.plots.axis import Axis, Floats, ParameterAxes, metric_axis, parameter_axes
from tune_tf.report.plots.outcome_style import STYLES
from tune_tf.result_keys import FROZEN_LAYERS, TRAINING_ITERATION
from tune_tf.results import SweepResult, TrialResult
from tune_tf.secrets import mask_secrets
from tune_tf.space import flatten
from tune_tf.sweep_folder import masked_sweep_file, trial_folder_name

_MANY_TRIALS = 300


@dataclass(frozen=True)
class CurveSegment:
    """Uninterrupted run of a trial in one process, timed in seconds since 1970.

    Ray rounds timestamps down to whole seconds.
    """

    process: str  # host and process id
    host: str
    start_s: float
    end_s: float  # report of its last iteration


@dataclass(frozen=True)
class Curve:
    """Learning curve of one trial."""

    iterations: NDArray[np.int64]  # ascending; of those repeated after a retry, only the last
    values: Floats  # metric of the objective by iteration; NaN if not finite
    segments: tuple[CurveSegment, ...]  # in order
    trained_s: float  # spent in iterations
    frozen_layers: str = ""  # what their outputs save, or why they are not shared

    @property
    def end_s(self) -> float:
        """Time of the last report, in seconds since 1970; NaN without one."""
        return self.segments[-1].end_s if self.segments else float("nan")


@dataclass(frozen=True)
class ReportData:
    """Result and learning curves of a sweep, and the text of its file with secrets masked."""

    result: SweepResult
    curves: tuple[Curve, ...]
    settings: str

    @classmethod
    def of(cls, result: SweepResult) -> "ReportData":
        """Read the learning curves and settings from the folder of a sweep."""
        try:
            settings = masked_sweep_file((result.path / "sweep.yaml").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # missing or damaged
            settings = masked_sweep_file(result.config.to_yaml())
        metric = result.objective.metric
        curves = tuple(
            read_curve(result.path / trial_folder_name(trial.number) / RESULTS, metric)
            for trial in result.trials
        )
        return cls(result, curves, settings)

    @cached_property
    def masked(self) -> Callable[[str], str]:
        """Function that masks secrets in a text, and remembers texts: configs repeat them."""
        return functools.cache(mask_secrets)

    @property
    def crowded(self) -> bool:
        """Whether there are so many trials that marks in plots are small."""
        return len(self.trials) > _MANY_TRIALS

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """Trials in order of number."""
        return self.result.trials

    @property
    def objective(self) -> Objective:
        """Leading objective."""
        return self.result.objective

    @property
    def best(self) -> TrialResult | None:
        """Best trial, or None."""
        return self.result.best_if_any

    @cached_property
    def best_index(self) -> int | None:
        """Index of the best trial in ``trials``, or None."""
        return None if self.best is None else self.trials.index(self.best)

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """Whether each trial meets the constraints."""
        return np.array([trial.feasible for trial in self.trials], dtype=bool)

    @cached_property
    def completed(self) -> NDArray[np.bool_]:
        """Whether each trial ran to completion."""
        outcomes = [trial.outcome for trial in self.trials]
        return np.array([outcome is Outcome.COMPLETED for outcome in outcomes], dtype=bool)

    @cached_property
    def values(self) -> Floats:
        """Last value of the leading objective by trial; NaN if not finite."""
        return self.values_of(self.objective)

    def values_of(self, objective: Objective) -> Floats:
        """Return the last value of an objective by trial; NaN if not finite."""
        values = [trial.metrics.get(objective.metric) for trial in self.trials]
        numbers = [float(value) if is_finite(value) else np.nan for value in values]  # type: ignore[arg-type]
        return np.array(numbers, dtype=np.float64)

    @cached_property
    def value_axis(self) -> Axis:
        """Axis of the leading objective."""
        return metric_axis(label_objective(self.objective), self.values)

    @cached_property
    def configs(self) -> tuple[Mapping[str, Any], ...]:
        """Flat config of each trial, without inactive parameters."""
        space = self.result.config.space
        return tuple(flatten(space.active(trial.config), space.parameters) for trial in self.trials)

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
        groups: dict[Outcome | None, list[int]] = {outcome: [] for outcome in STYLES}
        for index, trial in enumerate(self.trials):
            groups[trial.outcome].append(index)
        return [(outcome, indices) for outcome, indices in groups.items() if indices]

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
        end_times = self.end_times[~np.isnan(self.end_times)]
        return float(end_times.max()) if len(end_times) else float("nan")

    @cached_property
    def best_so_far(self) -> tuple[Floats, Floats]:
        """End times and values of the trials that improved on the best value.

        Only completed, feasible trials count, or all feasible ones if none completed.
        """
        eligible = self.feasible & ~np.isnan(self.values + self.end_times)
        if (eligible & self.completed).any():
            eligible &= self.completed
        order = np.argsort(self.end_times, kind="stable")
        times: list[float] = []
        values: list[float] = []
        for index in order[eligible[order]]:
            value = float(self.values[index])
            if not values or self.objective.better(value, values[-1]):
                times.append(float(self.end_times[index]))
                values.append(value)
        return np.array(times, dtype=np.float64), np.array(values, dtype=np.float64)

    @cached_property
    def ranking(self) -> tuple[int, ...]:
        """Indices of all trials, best first."""
        cost = np.nan_to_num(self.values) * (-1 if self.objective.mode == "max" else 1)
        keys = (cost, ~self.completed, ~self.feasible, np.isnan(self.values))  # the last is first
        return tuple(np.lexsort(keys).tolist())


def label_objective(objective: Objective) -> str:
    """Return the metric of an objective and its direction."""
    comparative = "higher" if objective.mode == "max" else "lower"
    return f"{objective.metric} ({comparative} is better)"


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
    since_restore_s = trained_s = 0.0
    frozen_layers = ""
    for report in read_results(path):
        values[report[TRAINING_ITERATION]] = _number(metric_value(report, metric))
        total_s = _number(report.get("time_total_s"))
        trained_s = total_s if total_s > trained_s else trained_s  # not if NaN
        since_restore_s = _extend(segments, report, since_restore_s)
        frozen_layers = str(metric_value(report, FROZEN_LAYERS) or "")
    iterations = sorted(values)
    return Curve(
        np.array(iterations, dtype=np.int64),
        np.array([values[iteration] for iteration in iterations], dtype=np.float64),
        tuple(segments),
        trained_s,
        frozen_layers,
    )


def _extend(segments: list[CurveSegment], report: Mapping[str, Any], before_s: float) -> float:
    """Extend the last segment or append a new one; return the report's ``time_since_restore``."""
    now = _number(report.get("timestamp"))
    since = _number(report.get("time_since_restore"))
    if not (math.isfinite(now) and math.isfinite(since)):
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
        return math.nan
    return float(value) if math.isfinite(value) else math.nan
