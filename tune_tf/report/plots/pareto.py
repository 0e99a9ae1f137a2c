"""Plot of the Pareto front of several objectives."""

from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tune_tf.formatting import counted
from tune_tf.objective import Objective
from tune_tf.report.plots.axis import metric_axis
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.picture import (
    Plot,
    label_axes,
    plotly_axis,
    set_scale,
    styled,
    typed,
)
from tune_tf.report.sweep_record import SweepRecord

_MOST_OBJECTIVES = 4


class ParetoFront(Plot):
    """Scatter plot of each pair of objectives, with rings around the Pareto front."""

    name = "pareto_front"
    title = "Pareto front"

    def __init__(self, record: SweepRecord) -> None:
        super().__init__(record)
        self._pairs = list(combinations(record.result.config.objectives[:_MOST_OBJECTIVES], 2))
        self._columns = max(1, min(3, len(self._pairs)))
        self._rows = max(1, -(-len(self._pairs) // self._columns))
        front = {trial.number for trial in record.result.pareto_front}
        self._front = [i for i, trial in enumerate(record.trials) if trial.number in front]
        self.height = 620 if len(self._pairs) == 1 else 80 + 400 * self._rows

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

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        grid = figure.subplots(self._rows, self._columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(self._pairs):
                axes.set_visible(False)
                continue
            first, second = self._pairs[place]
            x, y = self.record.values_of(first), self.record.values_of(second)
            styled(axes)
            for outcome, indices in self.record.groups:
                style = STYLES[outcome]
                axes.scatter(
                    x[indices],
                    y[indices],
                    s=26,
                    color=style.colour,
                    marker=style.marker,
                    alpha=0.6,
                    linewidths=0,
                    label=style.word,
                )
            axes.scatter(
                x[self._front],
                y[self._front],
                s=110,
                facecolors="none",
                edgecolors=INK,
                linewidths=1.6,
                label="Pareto front",
            )
            set_scale(axes, "x", metric_axis("", x))
            set_scale(axes, "y", metric_axis("", y))
            label_axes(axes, _label(first), _label(second))
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=len(labels), frameon=False,
            labelcolor=INK,
        )  # fmt: skip

    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure."""
        numbers = np.array([trial.number for trial in self.record.trials])
        data: list[dict[str, Any]] = []
        layout: dict[str, Any] = {
            "grid": {"rows": self._rows, "columns": self._columns, "pattern": "independent"},
            "hovermode": "closest",
        }
        for place, (first, second) in enumerate(self._pairs):
            suffix = "" if place == 0 else str(place + 1)
            x, y = self.record.values_of(first), self.record.values_of(second)
            layout[f"xaxis{suffix}"] = plotly_axis(metric_axis(_label(first), x))
            layout[f"yaxis{suffix}"] = plotly_axis(metric_axis(_label(second), y))
            marks = [
                (STYLES[outcome].word, indices, {
                    "color": STYLES[outcome].colour,
                    "symbol": STYLES[outcome].symbol,
                    "size": 7,
                    "opacity": 0.6,
                })
                for outcome, indices in self.record.groups
            ]  # fmt: skip
            ring = {"symbol": "circle-open", "size": 13, "line": {"width": 2}}
            for name, indices, marker in [*marks, ("Pareto front", self._front, ring)]:
                data.append(
                    {
                        "type": "scatter",
                        "mode": "markers",
                        "name": name,
                        "legendgroup": name,
                        "showlegend": place == 0,
                        "xaxis": f"x{suffix}",
                        "yaxis": f"y{suffix}",
                        "x": typed(x[indices]),
                        "y": typed(y[indices]),
                        "customdata": typed(numbers[indices], "i4"),
                        "hovertemplate": "trial %{customdata}<br>%{x}, %{y}<extra></extra>",
                        "marker": marker,
                        **({"meta": "ink"} if marker is ring else {}),
                    }
                )
        return {"data": data, "layout": layout}


def _label(objective: Objective) -> str:
    way = "higher" if objective.mode == "max" else "lower"
    return f"{objective.metric} ({way} is better)"
