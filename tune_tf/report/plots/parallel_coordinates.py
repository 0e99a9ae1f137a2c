"""Parallel coordinates plot of parameters and objective."""

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from tune_tf.report.plots.axis import Axis, Floats
from tune_tf.report.plots.chart import escape_plotly_text, typed_array
from tune_tf.report.plots.outcome_style import GRID, INK, MUTED
from tune_tf.report.plots.plot import Drawing, NothingToDrawError, Plot
from tune_tf.report.report_data import ReportData

_MISSING_AT = -0.09
VIRIDIS = ("#443983", "#31688e", "#21918c", "#35b779", "#8fd744")
"""Colours from worst to best: viridis (https://bids.github.io/colormap) without its ends, which are
invisible on black or white."""

_COLOURS = LinearSegmentedColormap.from_list("worst to best", list(VIRIDIS))


def plot_parallel_coordinates(record: ReportData) -> Plot:
    """Plot trials as lines across one axis per parameter and, last, the objective."""
    if not record.axes.visible:
        raise NothingToDrawError("the space holds nothing but constants")
    if np.isnan(record.values).all():
        raise NothingToDrawError(f"no trial reported a finite {record.objective.metric}")
    text = (
        "Each line is a trial; the lighter the line, the better its last value, which is on "
        "the rightmost axis with the better end up. On the page, drag along an axis to keep "
        "only the trials that pass there."
    )
    if any(axis.missing.any() for axis in (*record.axes.visible, record.value_axis)):
        text += " A line that passes below an axis, at “not set”, has no such parameter."
    if record.axes.left_out:
        text += f" Not shown: {', '.join(record.axes.left_out)}."
    return Plot(text, ParallelCoordinates(record))


class ParallelCoordinates(Drawing):
    """Lines of trials across one axis per parameter and, last, the objective."""

    def __init__(self, record: ReportData) -> None:
        self._objective = record.objective
        self._best_index = record.best_index
        self._axes: tuple[Axis, ...] = (*record.axes.visible, record.value_axis)
        finite = np.flatnonzero(~np.isnan(record.values))
        sign = 1 if record.objective.mode == "max" else -1
        self._worst_to_best = finite[np.argsort(sign * record.values[finite], kind="stable")]

    def draw(self, figure: Figure) -> None:
        """Draw on an empty Matplotlib figure."""
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(-0.15, len(self._axes) - 0.85)
        axes.set_ylim(_MISSING_AT - 0.03, 1.08)
        places = np.column_stack([self._heights(axis) for axis in self._axes])
        x = np.arange(len(self._axes))
        axes.add_collection(
            LineCollection(
                [np.column_stack([x, row]) for row in places[self._worst_to_best]],
                colors=_COLOURS(self._ranks()),
                linewidths=1.2,
                alpha=max(0.25, min(0.9, 15 / len(self._worst_to_best) ** 0.5)),
                rasterized=len(self._worst_to_best) > 300,
            )
        )
        if self._best_index is not None:
            axes.plot(x, places[self._best_index], color=INK, linewidth=2.4)
        for at, axis in enumerate(self._axes):
            axes.plot([at, at], [0, 1], color=MUTED, linewidth=1)
            axes.text(
                at, 1.05, self._name(axis), ha="center", va="bottom", color=INK, fontsize=11,
                parse_math=False,
            )  # fmt: skip
            for height, text in self._ticks(axis):
                axes.plot([at - 0.012, at + 0.012], [height] * 2, color=MUTED, linewidth=1)
                axes.text(
                    at + 0.02, height, text, va="center", color=INK, fontsize=9, parse_math=False,
                    bbox={"facecolor": GRID, "alpha": 0.6, "pad": 1, "linewidth": 0},
                )  # fmt: skip

    def to_plotly(self) -> dict[str, Any]:
        """Return a plotly.js figure: its ``data`` and ``layout``."""
        dimensions = []
        for axis in self._axes:
            ticks = self._ticks(axis)
            dimensions.append(
                {
                    "label": escape_plotly_text(self._name(axis)),
                    "values": typed_array(self._heights(axis)[self._worst_to_best]),
                    "tickvals": [height for height, _ in ticks],
                    "ticktext": [escape_plotly_text(text) for _, text in ticks],
                    "range": [min(0.0, ticks[0][0]), 1.0],
                }
            )
        steps = len(VIRIDIS) - 1
        trace = {
            "type": "parcoords",
            "dimensions": dimensions,
            "labelangle": -12 if len(dimensions) > 6 else 0,
            "line": {
                "color": typed_array(self._ranks()),
                "colorscale": [[at / steps, colour] for at, colour in enumerate(VIRIDIS)],
                "cmin": 0,
                "cmax": 1,
            },
            "unselected": {"line": {"opacity": 0.06}},
        }
        return {"data": [trace], "layout": {"margin": {"t": 90, "l": 70, "r": 70}}}

    def _ticks(self, axis: Axis) -> list[tuple[float, str]]:
        """Return heights and texts of ticks, with that of missing values first if there are any."""
        places, texts = axis.ticks()
        heights = map(float, self._flipped(axis, axis.scale(places)))
        missing = axis.missing[self._worst_to_best].any()
        return [*([(_MISSING_AT, "not set")] if missing else []), *zip(heights, texts, strict=True)]

    def _heights(self, axis: Axis) -> Floats:
        """Return the height of each trial on an axis, 0 to 1; below the axis if missing."""
        return np.where(axis.missing, _MISSING_AT, self._flipped(axis, axis.scale(axis.jittered)))

    def _name(self, axis: Axis) -> str:
        return self._objective.metric if axis is self._axes[-1] else axis.label

    def _flipped(self, axis: Axis, places: Floats) -> Floats:
        """Return heights with the better end of the objective's axis up."""
        down = axis is self._axes[-1] and self._objective.mode == "min"
        return 1 - places if down else places

    def _ranks(self) -> Floats:
        """Return evenly spaced ranks from worst to best, so that outliers do not matter."""
        count = len(self._worst_to_best)
        return np.linspace(0, 1, count) if count > 1 else np.ones(count)
