"""Plot of the learning curves of all trials."""

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from tune_tf.report.plots.axis import Axis, metric_axis
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.picture import (
    Plot,
    label_axes,
    legend,
    plotly_axis,
    set_scale,
    styled,
    typed,
    with_gaps,
)
from tune_tf.report.sweep_record import SweepRecord

_VECTORS = 5000


class LearningCurves(Plot):
    """Plot of the objective's metric by iteration, one line per trial, coloured by outcome."""

    name = "learning_curves"
    title = "Learning curves"

    def __init__(self, record: SweepRecord) -> None:
        super().__init__(record)
        self._num_points = sum(len(curve.values) for curve in record.curves)
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

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        axes = styled(figure.subplots())
        crowd = min(1.0, 12 / max(1, len(self.record.trials)) ** 0.5)
        for outcome, indices in self.record.groups:
            style = STYLES[outcome]
            lines = [self._line(index) for index in indices if len(self._line(index))]
            axes.add_collection(
                LineCollection(
                    lines,
                    colors=style.colour,
                    linewidths=1,
                    alpha=max(0.15, 0.8 * crowd),
                    rasterized=self._num_points > _VECTORS,
                )
            )
            ends = np.array([line[-1] for line in lines]).reshape(-1, 2)
            axes.scatter(
                ends[:, 0],
                ends[:, 1],
                s=22 if len(self.record.trials) < 500 else 10,
                color=style.colour,
                marker=style.marker,
                alpha=max(0.4, crowd),
                linewidths=0,
                rasterized=self._num_points > _VECTORS,
                label=style.word,
            )
        if self._best is not None:
            axes.plot(*self._line(self._best).T, color=INK, linewidth=2.4, label="best trial")
        axes.autoscale_view()
        set_scale(axes, "y", self._axis)
        label_axes(axes, "iteration", self.record.objective_label)
        legend(axes, loc="best")

    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure."""
        data: list[dict[str, Any]] = []
        crowd = max(0.35, min(0.8, 10 / max(1, len(self.record.trials)) ** 0.5))
        for outcome, indices in self.record.groups:
            style = STYLES[outcome]
            reported = [index for index in indices if len(self._line(index))]
            lines = [self._line(index) for index in reported]
            common = {"type": "scatter", "legendgroup": style.word, "name": style.word}
            x, y = (with_gaps([line[:, axis] for line in lines]) for axis in (0, 1))
            data.append(
                common
                | {
                    "mode": "lines",
                    "x": typed(x),
                    "y": typed(y),
                    "line": {"color": style.colour, "width": 1},
                    "opacity": crowd,
                    "connectgaps": False,
                    "hoverinfo": "skip",
                    "showlegend": False,
                }
            )
            ends = np.array([line[-1] for line in lines]).reshape(-1, 2)
            numbers = [self.record.trials[index].number for index in reported]
            data.append(
                common
                | {
                    "mode": "markers",
                    "x": typed(ends[:, 0]),
                    "y": typed(ends[:, 1]),
                    "customdata": typed(numbers, "i4"),
                    "marker": {"color": style.colour, "symbol": style.symbol, "size": 5},
                    "hovertemplate": f"trial %{{customdata}}, {style.word}<br>"
                    "iteration %{x}: %{y}<extra></extra>",
                }
            )
        if self._best is not None:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": "best trial",
                    "x": typed(self._line(self._best)[:, 0]),
                    "y": typed(self._line(self._best)[:, 1]),
                    "line": {"width": 3},
                    "meta": "ink",
                    "hovertemplate": "best trial<br>iteration %{x}: %{y}<extra></extra>",
                }
            )
        layout = {
            "xaxis": {"title": {"text": "iteration"}, "zeroline": False},
            "yaxis": plotly_axis(self._axis),
            "hovermode": "closest",
        }
        return {"data": data, "layout": layout}

    def _line(self, index: int) -> Any:
        """Return the finite points of a trial, one per row."""
        curve = self.record.curves[index]
        points = np.column_stack([curve.iterations, curve.values])
        return points[~np.isnan(points[:, 1])]
