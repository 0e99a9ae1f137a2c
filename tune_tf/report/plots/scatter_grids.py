"""Plots of a grid of scatter panels: slices of the space, and Pareto fronts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from tune_tf.formatting import counted
from tune_tf.report.plots.axis import Floats, metric_axis
from tune_tf.report.plots.chart import Chart, Markers, Panel
from tune_tf.report.plots.outcome_style import INK, STYLES, OutcomeStyle
from tune_tf.report.plots.picture import Plot
from tune_tf.report.sweep_record import ReportData, label_objective

_COLUMNS = 3
_MOST_OBJECTIVES = 4
_RING = OutcomeStyle("", "", INK, "o", "circle")


class Slices(Plot):
    """Scatter plots of the last value of each trial over the value of each parameter."""

    name = "slices"
    title = "Slices"

    def __init__(self, record: ReportData) -> None:
        super().__init__(record)
        self._axes = record.axes.visible
        self.height = max(420, 330 * -(-len(self._axes) // _COLUMNS) + 60)

    @property
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""
        if not self._axes:
            return "the space holds nothing but constants"
        if np.isnan(self.record.values).all():
            return f"no trial reported a finite {self.record.objective.metric}"
        return None

    @property
    def reading(self) -> str:
        """Instructions for reading the plot."""
        text = (
            "Each mark is a trial. Where the best marks crowd at an edge, the range may be too "
            "narrow; where they lie flat, the parameter hardly matters. Options of a choice are "
            "spread sideways so that marks do not hide each other."
        )
        if self.record.axes.left_out:
            text += f" Not shown: {', '.join(self.record.axes.left_out)}."
        return text

    def chart(self) -> Chart:
        """Return the chart."""
        record = self.record
        best = [] if record.best_index is None else [record.best_index]
        panels = []
        for place, axis in enumerate(self._axes):
            joint = ": " if axis.options is not None else "<br>%{x}: "
            marks = [
                *_by_outcome(record, axis.jittered, record.values, f"{joint}%{{y}}"),
                _rings("best trial", axis.jittered, record.values, best),
            ]
            label = "" if place % _COLUMNS else record.objective.metric
            panels.append(Panel(axis, replace(record.value_axis, label=label), marks))
        return Chart(panels, self.crowded, min(_COLUMNS, len(panels)), shares_y=True)


class ParetoFront(Plot):
    """Scatter plot of each pair of objectives, with rings around the Pareto front."""

    name = "pareto_front"
    title = "Pareto front"

    def __init__(self, record: ReportData) -> None:
        super().__init__(record)
        self._pairs = list(combinations(record.result.config.objectives[:_MOST_OBJECTIVES], 2))
        front = {trial.number for trial in record.result.pareto_front}
        self._front = [i for i, trial in enumerate(record.trials) if trial.number in front]
        if len(self._pairs) > 1:
            self.height = 80 + 400 * -(-len(self._pairs) // _COLUMNS)

    @property
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""
        if not self._pairs:
            return "the sweep has one objective"
        if not self._front:
            return "no completed, feasible trial reported all objectives"
        return None

    @property
    def reading(self) -> str:
        """Instructions for reading the plot."""
        return (
            f"Each mark is a trial; rings mark the {counted(len(self._front), 'trial')} of the "
            "front, which no other completed trial beats in every objective. Choose among them "
            "by what each objective is worth to you."
        )

    def chart(self) -> Chart:
        """Return the chart."""
        panels = []
        for pair in self._pairs:
            x, y = (metric_axis(label_objective(it), self.record.values_of(it)) for it in pair)
            marks = [
                *_by_outcome(self.record, x.values, y.values, "<br>%{x}, %{y}"),
                _rings("Pareto front", x.values, y.values, self._front),
            ]
            panels.append(Panel(x, y, marks))
        return Chart(panels, self.crowded, min(_COLUMNS, len(panels)))


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
