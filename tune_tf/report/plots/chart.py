"""Charts of marks, lines and bars, described once and drawn by Matplotlib and by plotly.js."""

import base64
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from tune_tf.report.plots.axis import Axis, Floats
from tune_tf.report.plots.outcome_style import GRID, INK, MUTED, OutcomeStyle

_VECTORS = 5000  # points above which Matplotlib draws pixels
_PIXEL = 0.72  # points of a pixel at 100 dpi


@dataclass(frozen=True)
class Marks:
    """Marks of trials.

    Args:
        name: Text in the legend, as for lines and bars; each name is there once.
        style: Colour and shape.
        size: Diameter in pixels.
        hover: Template of plotly.js for the text under the pointer, as for lines and bars.
        numbers: Numbers of the trials, ``customdata`` in the template.
        texts: Further texts for the template.
    """

    name: str
    style: OutcomeStyle
    x: Floats
    y: Floats
    size: int
    opacity: float = 0.75
    hollow: bool = False
    hover: str = ""
    numbers: Sequence[int] = ()
    texts: Sequence[str] = ()


@dataclass(frozen=True)
class Lines:
    """Lines of one colour; each is an array of points, one per row."""

    name: str
    lines: Sequence[Floats]
    colour: str
    width: float
    opacity: float = 1.0
    in_legend: bool = True
    hover: str = ""


@dataclass(frozen=True)
class Bars:
    """Bars at places of the other axis, which they are ``thickness`` wide.

    Args:
        starts: Where each bar begins; None to stack the bars of a panel.
    """

    name: str
    colour: str
    places: Sequence[int]
    lengths: Sequence[float]
    starts: Sequence[float] | None
    horizontal: bool
    thickness: float = 0.65
    hover: str = ""
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class Panel:
    """Axes with series; ``notes`` are texts beside points: x, y and the text."""

    x: Axis
    y: Axis
    series: Sequence[Marks | Lines | Bars]
    notes: Sequence[tuple[float, float, str]] = ()
    note_side: Literal["above", "right"] = "above"


@dataclass(frozen=True)
class Chart:
    """Panels in rows, with one legend."""

    panels: Sequence[Panel]
    columns: int = 1
    shares_y: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.ceil(len(self.panels) / self.columns)


def draw_chart(chart: Chart, figure: Figure) -> None:
    """Draw a chart on an empty Matplotlib figure."""
    grid = figure.subplots(chart.rows, chart.columns, squeeze=False, sharey=chart.shares_y)
    labelled: dict[str, Any] = {}
    for axes in grid.flat[len(chart.panels) :]:
        axes.set_visible(False)
    for panel, axes in zip(chart.panels, grid.flat, strict=False):
        _draw_panel(panel, axes)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    if labelled:
        legend = figure.legend(
            labelled.values(), labelled.keys(), loc="outside lower center",
            ncols=min(8, len(labelled)), frameon=False, labelcolor=INK, fontsize=10,
        )  # fmt: skip
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1)


def _draw_panel(panel: Panel, axes: Axes) -> None:
    bars = [each for each in panel.series if isinstance(each, Bars)]
    styled(axes, grid="both" if not bars else "x" if bars[0].horizontal else "y")
    rasterized = sum(map(_num_points, panel.series)) > _VECTORS
    below = np.zeros(len(bars[0].places)) if bars else np.zeros(0)
    for each in panel.series:
        match each:
            case Marks():
                _draw_marks(each, axes, rasterized=rasterized)
            case Lines():
                axes.add_collection(
                    LineCollection(
                        list(each.lines),
                        colors=each.colour,
                        linewidths=each.width,
                        alpha=each.opacity,
                        rasterized=rasterized,
                        label=each.name if each.in_legend else "",
                    )
                )
            case Bars():
                starts = below if each.starts is None else np.asarray(each.starts)
                _draw_bars(each, starts, axes, rasterized=rasterized)
                if each.starts is None:
                    below = below + np.asarray(each.lengths)
    axes.autoscale_view()
    for x, y, text in panel.notes:
        above = panel.note_side == "above"
        axes.text(
            x, y, text if above else f" {text}", color=INK, ha="center" if above else "left",
            va="bottom" if above else "center",
        )  # fmt: skip
    _set_scale(axes, "x", panel.x)
    _set_scale(axes, "y", panel.y)
    axes.tick_params(labelleft=True)
    label_axes(axes, panel.x.label, panel.y.label)


def _num_points(series: Marks | Lines | Bars) -> int:
    match series:
        case Marks():
            return len(series.x)
        case Lines():
            return sum(map(len, series.lines))
    return len(series.places)


def _draw_marks(marks: Marks, axes: Axes, *, rasterized: bool) -> None:
    axes.scatter(
        marks.x,
        marks.y,
        s=(_PIXEL * marks.size) ** 2,
        marker=marks.style.marker,
        facecolors="none" if marks.hollow else marks.style.colour,
        edgecolors=marks.style.colour,
        linewidths=1.5 if marks.hollow else 0,
        alpha=marks.opacity,
        rasterized=rasterized,
        label=marks.name,
    )


def _draw_bars(bars: Bars, starts: Floats, axes: Axes, *, rasterized: bool) -> None:
    half = bars.thickness / 2
    corners = [
        [(start, at - half), (start + length, at - half), (start + length, at + half),
         (start, at + half)]
        for start, length, at in zip(starts, bars.lengths, bars.places, strict=True)
    ]  # fmt: skip
    if not bars.horizontal:
        corners = [[(x, y) for y, x in each] for each in corners]
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=bars.colour,
            edgecolors="white",
            linewidths=0.4 if len(corners) < 300 else 0,
            rasterized=rasterized,
            label=bars.name,
        )
    )


def plotly_chart(chart: Chart) -> dict[str, Any]:
    """Return a chart as a plotly.js figure: its ``data`` and ``layout``."""
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"hovermode": "closest", "annotations": []}
    if len(chart.panels) > 1:
        layout["grid"] = {"rows": chart.rows, "columns": chart.columns, "pattern": "independent"}
    named: set[str] = set()
    for place, panel in enumerate(chart.panels):
        suffix = "" if place == 0 else str(place + 1)
        layout[f"xaxis{suffix}"] = _plotly_axis(panel.x)
        layout[f"yaxis{suffix}"] = _plotly_axis(panel.y)
        if chart.shares_y and place:
            layout[f"yaxis{suffix}"]["matches"] = "y"
        refs = {"x": f"x{suffix}", "y": f"y{suffix}"}
        for each in panel.series:
            trace = _plotly_trace(each) | {f"{way}axis": ref for way, ref in refs.items()}
            if each.hover:
                trace["hovertemplate"] = f"{each.hover}<extra></extra>"
            else:
                trace["hoverinfo"] = "skip"
            trace |= {"name": each.name, "legendgroup": each.name}
            if each.name in named or (isinstance(each, Lines) and not each.in_legend):
                trace["showlegend"] = False
            else:
                named.add(each.name)
            if isinstance(each, Bars):
                layout["barmode"] = "stack" if each.starts is None else "overlay"
            data.append(trace)
        layout["annotations"] += [
            {"x": x, "y": y, "text": escape_plotly_text(text), "showarrow": False,
             "xref": refs["x"], "yref": refs["y"]}
            | ({"yanchor": "bottom"} if panel.note_side == "above" else {"xanchor": "left"})
            for x, y, text in panel.notes
        ]  # fmt: skip
    return {"data": data, "layout": layout}


def _plotly_trace(series: Marks | Lines | Bars) -> dict[str, Any]:
    match series:
        case Marks(style=style):
            marker = {
                "symbol": f"{style.symbol}-open" if series.hollow else style.symbol,
                "size": series.size,
                "opacity": series.opacity,
                **({"line": {"width": 2}} if series.hollow else {}),
            }
            return {
                "type": "scatter",
                "mode": "markers",
                "x": typed(series.x),
                "y": typed(series.y),
                **({"customdata": typed(series.numbers, "i4")} if len(series.numbers) else {}),
                **({"text": list(series.texts)} if series.texts else {}),
                **_plotly_colour("marker", marker, style.colour),
            }
        case Lines():
            return {
                "type": "scatter",
                "mode": "lines",
                "x": typed(_with_gaps([line[:, 0] for line in series.lines])),
                "y": typed(_with_gaps([line[:, 1] for line in series.lines])),
                "opacity": series.opacity,
                **_plotly_colour("line", {"width": series.width}, series.colour),
            }
    along, across = ("x", "y") if series.horizontal else ("y", "x")
    return {
        "type": "bar",
        "orientation": "h" if series.horizontal else "v",
        along: list(series.lengths),
        across: list(series.places),
        "width": series.thickness,
        **({} if series.starts is None else {"base": typed(series.starts)}),
        **({"customdata": typed(series.numbers, "i4")} if len(series.numbers) else {}),
        "marker": {"color": series.colour},
    }


def _plotly_colour(part: str, settings: dict[str, Any], colour: str) -> dict[str, Any]:
    """Return the settings of a marker or line; the page colours what is marked as ink."""
    if colour == INK:
        return {part: settings, "meta": "ink"}
    return {part: settings | {"color": colour}}


def _with_gaps(lines: Sequence[Floats]) -> Floats:
    """Join lines into one array with a NaN between two, which plotly.js draws as a gap."""
    if not lines:
        return np.empty(0)
    return np.concatenate([part for line in lines for part in (line, [np.nan])])[:-1]


def styled(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> Axes:
    """Apply the report's style to axes: a light grid behind, no frame."""
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.grid(visible=True, axis=grid, color=GRID, linewidth=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(which="both", colors=MUTED, labelsize=10)
    return axes


def label_axes(axes: Axes, x: str = "", y: str = "") -> None:
    """Label both axes, with dollar signs taken literally."""
    axes.set_xlabel(x, color=INK, fontsize=11, parse_math=False)
    axes.set_ylabel(y, color=INK, fontsize=11, parse_math=False)


def typed(values: Any, kind: str = "f4") -> dict[str, str]:
    """Encode one-dimensional numbers as a typed array of a kind such as ``f4`` or ``i4``.

    plotly.js reads this format fastest.
    """
    array = np.ascontiguousarray(values, dtype=f"<{kind}")
    return {"dtype": kind, "bdata": base64.b64encode(array.tobytes()).decode("ascii")}


def escape_plotly_text(text: str) -> str:
    """Escape a text for plotly.js, which interprets some HTML tags."""
    return html.escape(text, quote=False)


def _plotly_axis(axis: Axis) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "title": {"text": escape_plotly_text(axis.label)},
        "zeroline": False,
    }
    if axis.options is not None:
        ticks, texts = axis.ticks()
        settings |= {"tickvals": ticks, "ticktext": list(map(escape_plotly_text, texts))}
    elif axis.percent:
        settings["tickformat"] = ".0%"
    else:
        settings["exponentformat"] = "power"
    if axis.fixed:
        settings["range"] = [axis.low, axis.high]
    if axis.log:
        narrow = axis.low > 0 and np.log10(axis.high / axis.low) < 1.5  # decades
        settings |= {"type": "log", "dtick": "D1" if narrow else 1}
    return settings


def _set_scale(axes: Axes, which: Literal["x", "y"], axis: Axis) -> None:
    """Apply the ticks, the limits and the log scale of an axis to Matplotlib's."""
    if axis.options is not None:
        ticks, texts = axis.ticks()
        getattr(axes, f"set_{which}ticks")(ticks, labels=texts, parse_math=False)
        if which == "x" and sum(map(len, texts)) > 30:
            axes.tick_params(axis="x", labelrotation=25)
    elif axis.percent:
        getattr(axes, f"{which}axis").set_major_formatter(PercentFormatter(1, decimals=0))
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
    if axis.fixed:
        getattr(axes, f"set_{which}lim")(axis.low, axis.high)
