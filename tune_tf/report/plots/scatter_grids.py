"""Grids of scatter plots: slices of the search space, and Pareto fronts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from tune_tf.formatting import counted
from tune_tf.report.plots.axis import Floats, metric_axis
from tune_tf.report.plots.chart import Chart, Markers, Panel
from tune_tf.report.plots.outcome_style import INK, STYLES, OutcomeStyle
from tune_tf.report.plots.plot import NothingToDrawError, Plot
from tune_tf.report.report_data import ReportData, label_objective

_COLUMNS = 3
_MOST_OBJECTIVES = 4
_RING = OutcomeStyle("", "", INK, "o", "circle")


def plot_slices(record: ReportData) -> Plot:
    """Plot the last value of each trial over the value of each parameter."""
    axes = record.axes.visible
    metric = record.objective.metric
    if not axes:
        raise NothingToDrawError("the space holds nothing but constants")
    if np.isnan(record.values).all():
        raise NothingToDrawError(f"no trial reported a finite {metric}")
    best = [] if record.best_index is None else [record.best_index]
    panels = []
    for index, axis in enumerate(axes):
        joint = ": " if axis.options is not None else "<br>%{x}: "
        marks = [
            *_by_outcome(record, axis.jittered, record.values, f"{joint}%{{y}}"),
            _rings("best trial", axis.jittered, record.values, best),
        ]
        label = "" if index % _COLUMNS else metric
        panels.append(Panel(axis, replace(record.value_axis, label=label), marks))
    caption = (
        "Each mark is a trial. Where the best marks crowd at an edge, the range may be too "
        "narrow; where they lie flat, the parameter hardly matters. Options of a choice are "
        "spread sideways so that marks do not hide each other."
    )
    if record.axes.left_out:
        caption += f" Not shown: {', '.join(record.axes.left_out)}."
    chart = Chart(panels, record.crowded, min(_COLUMNS, len(panels)), shares_y=True)
    return Plot(caption, chart, height=max(420, 330 * chart.rows + 60))


def plot_pareto_front(record: ReportData) -> Plot:
    """Plot each pair of objectives, with rings around the Pareto front."""
    numbers = {trial.number for trial in record.result.pareto_front}
    front = [i for i, trial in enumerate(record.trials) if trial.number in numbers]
    if not front:
        raise NothingToDrawError("no completed, feasible trial reported all objectives")
    panels = []
    for pair in combinations(record.result.config.objectives[:_MOST_OBJECTIVES], 2):
        x, y = (metric_axis(label_objective(it), record.values_of(it)) for it in pair)
        marks = [
            *_by_outcome(record, x.values, y.values, "<br>%{x}, %{y}"),
            _rings("Pareto front", x.values, y.values, front),
        ]
        panels.append(Panel(x, y, marks))
    caption = (
        f"Each mark is a trial; rings mark the {counted(len(front), 'trial')} of the front, which "
        "no other completed trial beats in every objective. Choose among them by what each "
        "objective is worth to you."
    )
    chart = Chart(panels, record.crowded, min(_COLUMNS, len(panels)))
    return Plot(caption, chart, height=620 if len(panels) == 1 else 80 + 400 * chart.rows)


def _by_outcome(record: ReportData, x: Floats, y: Floats, hover: str) -> Iterator[Markers]:
    """Yield the marks of all trials; ``hover`` follows the number of the trial."""
    for outcome, indices in record.groups:
        style = STYLES[outcome]
        numbers = [record.trials[index].number for index in indices]
        yield Markers(
            name=style.word,
            hover=f"trial %{{customdata}}{hover}",
            numbers=numbers,
            style=style,
            x=x[indices],
            y=y[indices],
        )


def _rings(name: str, x: Floats, y: Floats, indices: Sequence[int]) -> Markers:
    return Markers(name=name, style=_RING, x=x[indices], y=y[indices], size=14, hollow=True)
