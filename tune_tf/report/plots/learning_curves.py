"""Plot of the learning curves of all trials."""

from typing import Any

import numpy as np

from tune_tf.report.plots.axis import Axis, metric_axis
from tune_tf.report.plots.chart import Chart, Lines, Markers, Panel
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.picture import Plot
from tune_tf.report.sweep_record import ReportData


class LearningCurves(Plot):
    """Plot of the objective's metric by iteration, one line per trial, coloured by outcome."""

    name = "learning_curves"
    title = "Learning curves"

    def __init__(self, record: ReportData) -> None:
        super().__init__(record)
        every = [curve.values for curve in record.curves] or [np.empty(0)]
        self._axis: Axis = metric_axis(record.objective_label, np.concatenate(every))
        self._best = record.best_index

    @property
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""
        if np.isfinite(self._axis.values).any():
            return None
        return "no trial's folder holds a report with a finite value"

    @property
    def reading(self) -> str:
        """Instructions for reading the plot."""
        return (
            "Each line is a trial, with a mark where it ended; the best trial is drawn bold. If "
            "lines that were stopped early were still crossing those that continued, the "
            "scheduler may have stopped trials too soon."
        )

    def chart(self) -> Chart:
        """Return the chart."""
        series: list[Lines | Markers] = []
        opacity = max(0.3, min(0.8, 10 / max(1, len(self.record.trials)) ** 0.5))
        for outcome, indices in self.record.groups:
            style = STYLES[outcome]
            reported = [index for index in indices if len(self._line(index))]
            lines = [self._line(index) for index in reported]
            ends = np.array([line[-1] for line in lines]).reshape(-1, 2)
            series.append(
                Lines(
                    name=style.word,
                    in_legend=False,
                    lines=lines,
                    colour=style.colour,
                    width=1,
                    opacity=opacity,
                )
            )
            series.append(
                Markers(
                    name=style.word,
                    style=style,
                    x=ends[:, 0],
                    y=ends[:, 1],
                    hover=f"trial %{{customdata}}, {style.word}<br>iteration %{{x}}: %{{y}}",
                    numbers=[self.record.trials[index].number for index in reported],
                )
            )
        if self._best is not None:
            hover = "best trial<br>iteration %{x}: %{y}"
            best = [self._line(self._best)]
            series.append(Lines(name="best trial", hover=hover, lines=best, colour=INK, width=3))
        return Chart([Panel(Axis("iteration"), self._axis, series)], self.crowded)

    def _line(self, index: int) -> Any:
        """Return the finite points of a trial, one per row."""
        curve = self.record.curves[index]
        points = np.column_stack([curve.iterations, curve.values])
        return points[~np.isnan(points[:, 1])]
