"""Slice plot of each parameter against the objective."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tune_tf.report.plots.axis import Axis
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.picture import Plot, label_axes, plotly_axis, set_scale, styled, typed
from tune_tf.report.sweep_record import SweepRecord

_COLUMNS = 3
_ROW_HEIGHT = 330


class Slices(Plot):
    """Scatter plots of the last value of each trial over the value of each parameter."""

    name = "slices"
    title = "Slices"

    def __init__(self, record: SweepRecord) -> None:
        super().__init__(record)
        self._axes = record.axes.visible
        self._columns = max(1, min(_COLUMNS, len(self._axes)))
        self._rows = max(1, math.ceil(len(self._axes) / self._columns))
        self.height = max(420, _ROW_HEIGHT * self._rows + 60)

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

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        record = self.record
        grid = figure.subplots(self._rows, self._columns, squeeze=False, sharey=True)
        many = len(record.trials) * len(self._axes) > 3000
        for place, axes in enumerate(grid.flat):
            if place >= len(self._axes):
                axes.set_visible(False)
                continue
            axis = self._axes[place]
            styled(axes)
            for outcome, indices in record.groups:
                style = STYLES[outcome]
                axes.scatter(
                    axis.jittered[indices],
                    record.values[indices],
                    s=8 if many else 20,
                    color=style.colour,
                    marker=style.marker,
                    alpha=0.6 if many else 0.85,
                    linewidths=0,
                    rasterized=many,
                    label=style.word,
                )
            if record.best_index is not None:
                axes.scatter(
                    axis.jittered[record.best_index],
                    record.values[record.best_index],
                    s=140,
                    facecolors="none",
                    edgecolors=INK,
                    linewidths=1.6,
                    label="best trial",
                )
            set_scale(axes, "x", axis)
            set_scale(axes, "y", record.value_axis)
            axes.tick_params(labelleft=True)
            label_axes(axes, axis.label, "" if place % self._columns else record.objective.metric)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=len(labels), frameon=False,
            labelcolor=INK,
        )  # fmt: skip

    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure."""
        record = self.record
        data: list[dict[str, Any]] = []
        layout: dict[str, Any] = {
            "grid": {"rows": self._rows, "columns": self._columns, "pattern": "independent"},
            "hovermode": "closest",
            "legend": {"y": 1.02, "yanchor": "bottom", "orientation": "h"},
        }
        for place, axis in enumerate(self._axes):
            suffix = "" if place == 0 else str(place + 1)
            layout[f"xaxis{suffix}"] = plotly_axis(axis)
            layout[f"yaxis{suffix}"] = plotly_axis(
                record.value_axis, "" if place % self._columns else record.objective.metric
            ) | ({"matches": "y"} if place else {})
            common = {
                "type": "scatter",
                "mode": "markers",
                "xaxis": f"x{suffix}",
                "yaxis": f"y{suffix}",
                "showlegend": place == 0,
            }
            data += self._traces(axis, common, first=place == 0)
        return {"data": data, "layout": layout}

    def _traces(
        self, axis: Axis, common: dict[str, Any], *, first: bool
    ) -> Iterator[dict[str, Any]]:
        """Yield the points of one parameter by outcome, then the best trial."""
        record = self.record
        numbers = np.array([trial.number for trial in record.trials])
        for outcome, indices in record.groups:
            style = STYLES[outcome]
            chosen = [i for i in indices if not np.isnan(record.values[i] + axis.values[i])]
            if not chosen and not first:
                continue
            yield common | {
                "name": style.word,
                "legendgroup": style.word,
                "x": typed(axis.jittered[chosen]),
                "y": typed(record.values[chosen]),
                "customdata": typed(numbers[chosen], "i4"),
                "hovertemplate": "trial %{customdata}: %{y}<extra></extra>"
                if axis.options is not None
                else "trial %{customdata}<br>%{x}: %{y}<extra></extra>",
                "marker": {
                    "color": style.colour,
                    "symbol": style.symbol,
                    "size": 4 if len(record.trials) > 500 else 6,
                    "opacity": 0.6,
                },
            }
        if record.best_index is not None:
            yield common | {
                "name": "best trial",
                "legendgroup": "best",
                "x": [_plain_number(axis.jittered[record.best_index])],
                "y": [_plain_number(record.values[record.best_index])],
                "marker": {"symbol": "circle-open", "size": 14, "line": {"width": 2}},
                "meta": "ink",
                "hoverinfo": "skip",
            }


def _plain_number(value: float) -> float | None:
    """Return a number as JSON allows it: None for NaN."""
    return None if math.isnan(value) else float(value)
