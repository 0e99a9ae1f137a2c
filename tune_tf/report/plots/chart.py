"""Charts of marks, lines and bars, described once and drawn by Matplotlib and by plotly.js."""

import abc
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
from tune_tf.report.plots.plot import Drawing

_PIXEL = 0.72  # points of a pixel at 100 dpi


@dataclass(frozen=True, kw_only=True)
class Series(abc.ABC):
    """Marks, lines or bars of one name."""

    name: str  # in the legend, where each name is once
    hover: str = ""  # template of plotly.js for the text under the pointer; empty for none
    numbers: Sequence[int] = ()  # of the trials, ``customdata`` in the template
    in_legend: bool = True

    @abc.abstractmethod
    def draw(self, axes: Axes, *, crowded: bool) -> None:
        """Draw on Matplotlib's axes, as pixels if ``crowded``."""

    @abc.abstractmethod
    def trace(self, *, crowded: bool) -> dict[str, Any]:
        """Return the settings of a trace of plotly.js besides those of every series."""


@dataclass(frozen=True, kw_only=True)
class Markers(Series):
    """Marks of trials; ``texts`` are further texts for the template."""

    style: OutcomeStyle
    x: Floats
    y: Floats
    size: int | None = None
    hollow: bool = False
    texts: Sequence[str] = ()

    def draw(self, axes: Axes, *, crowded: bool) -> None:
        """Draw on Matplotlib's axes, as pixels if ``crowded``."""
        axes.scatter(
            self.x,
            self.y,
            s=(_PIXEL * self._diameter(crowded)) ** 2,
            marker=self.style.marker,
            facecolors="none" if self.hollow else self.style.colour,
            edgecolors=self.style.colour,
            linewidths=1.5 if self.hollow else 0,
            alpha=0.75,
            rasterized=crowded,
            label=self.name,
        )

    def trace(self, *, crowded: bool) -> dict[str, Any]:
        """Return the settings of a trace of plotly.js besides those of every series."""
        marker = {
            "symbol": f"{self.style.symbol}-open" if self.hollow else self.style.symbol,
            "size": self._diameter(crowded),
            "opacity": 0.75,
            **({"line": {"width": 2}} if self.hollow else {}),
        }
        return {
            "type": "scatter",
            "mode": "markers",
            "x": typed_array(self.x),
            "y": typed_array(self.y),
            **({"text": list(self.texts)} if self.texts else {}),
            **_plotly_colour("marker", marker, self.style.colour),
        }

    def _diameter(self, crowded: bool) -> int:
        """Return the diameter in pixels."""
        return self.size or (5 if crowded else 8)


@dataclass(frozen=True, kw_only=True)
class Lines(Series):
    """Lines of one colour; each is an array of points, one per row."""

    lines: Sequence[Floats]
    colour: str
    width: float
    opacity: float = 1.0

    def draw(self, axes: Axes, *, crowded: bool) -> None:
        """Draw on Matplotlib's axes, as pixels if ``crowded``."""
        axes.add_collection(
            LineCollection(
                list(self.lines),
                colors=self.colour,
                linewidths=self.width,
                alpha=self.opacity,
                rasterized=crowded,
                label=self.name if self.in_legend else "",
            )
        )

    def trace(self, *, crowded: bool) -> dict[str, Any]:
        """Return the settings of a trace of plotly.js besides those of every series."""
        # plotly.js draws a gap at a NaN.
        parts = [part for line in self.lines for part in (line, [[np.nan, np.nan]])]
        points = np.concatenate(parts) if parts else np.empty((0, 2))
        return {
            "type": "scatter",
            "mode": "lines",
            "x": typed_array(points[:, 0]),
            "y": typed_array(points[:, 1]),
            "opacity": self.opacity,
            **_plotly_colour("line", {"width": self.width}, self.colour),
        }


@dataclass(frozen=True, kw_only=True)
class Bars(Series):
    """Bars from ``starts`` on, at places of the other axis."""

    colour: str
    places: Sequence[int]
    starts: Sequence[float]
    lengths: Sequence[float]
    horizontal: bool

    def draw(self, axes: Axes, *, crowded: bool) -> None:
        """Draw on Matplotlib's axes, as pixels if ``crowded``."""
        if not self.places:  # Matplotlib has no legend for no bars
            return
        start, place = np.asarray(self.starts, float), np.asarray(self.places, float)
        end = start + np.asarray(self.lengths, float)
        along = np.column_stack([start, end, end, start])
        across = np.column_stack([place - 0.4, place - 0.4, place + 0.4, place + 0.4])
        vertices = (along, across) if self.horizontal else (across, along)
        bars = PolyCollection(  # `axes.bar` takes a second for thousands
            list(np.stack(vertices, axis=-1)),
            facecolors=self.colour,
            edgecolors="white",
            linewidths=0 if crowded else 0.4,
            rasterized=crowded,
            label=self.name,
        )
        axes.add_collection(bars)
        sticky = bars.sticky_edges
        (sticky.x if self.horizontal else sticky.y).extend(self.starts)  # no margin before them

    def trace(self, *, crowded: bool) -> dict[str, Any]:
        """Return the settings of a trace of plotly.js besides those of every series."""
        along, across = ("x", "y") if self.horizontal else ("y", "x")
        return {
            "type": "bar",
            "orientation": "h" if self.horizontal else "v",
            along: list(self.lengths),
            across: list(self.places),
            "base": typed_array(self.starts),
            "width": 0.8,
            "marker": {"color": self.colour},
        }


@dataclass(frozen=True)
class Panel:
    """Axes with series; ``notes`` are texts beside points: x, y and the text."""

    x: Axis
    y: Axis
    series: Sequence[Series]
    notes: Sequence[tuple[float, float, str]] = ()
    note_side: Literal["above", "right"] = "above"


@dataclass(frozen=True)
class Chart(Drawing):
    """Panels in rows, with one legend."""

    panels: Sequence[Panel]
    crowded: bool  # whether there are so many trials that marks are small
    columns: int = 1
    shares_y: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return math.ceil(len(self.panels) / self.columns)

    def draw(self, figure: Figure) -> None:
        """Draw on an empty Matplotlib figure."""
        grid = figure.subplots(self.rows, self.columns, squeeze=False, sharey=self.shares_y)
        labelled: dict[str, Any] = {}
        for axes in grid.flat[len(self.panels) :]:
            axes.set_visible(False)
        for panel, axes in zip(self.panels, grid.flat, strict=False):
            bars = [each for each in panel.series if isinstance(each, Bars)]
            style_axes(axes, grid="both" if not bars else "x" if bars[0].horizontal else "y")
            for each in panel.series:
                each.draw(axes, crowded=self.crowded)
            axes.autoscale_view()
            alignments = {"above": ("center", "bottom", ""), "right": ("left", "center", " ")}
            ha, va, space = alignments[panel.note_side]
            for x, y, text in panel.notes:
                axes.text(x, y, space + text, color=INK, ha=ha, va=va)
            _set_scale(axes, "x", panel.x)
            _set_scale(axes, "y", panel.y)
            axes.tick_params(labelleft=True)
            label_axes(axes, panel.x.label, panel.y.label)
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

    def to_plotly(self) -> dict[str, Any]:
        """Return a plotly.js figure: its ``data`` and ``layout``."""
        data: list[dict[str, Any]] = []
        layout: dict[str, Any] = {"hovermode": "closest", "barmode": "overlay", "annotations": []}
        if len(self.panels) > 1:
            layout["grid"] = {"rows": self.rows, "columns": self.columns, "pattern": "independent"}
        named: set[str] = set()
        for index, panel in enumerate(self.panels):
            suffix = str(index + 1) if index else ""
            layout[f"xaxis{suffix}"] = _plotly_axis(panel.x)
            layout[f"yaxis{suffix}"] = _plotly_axis(panel.y)
            if self.shares_y and index:
                layout[f"yaxis{suffix}"]["matches"] = "y"
            for each in panel.series:
                data.append(
                    each.trace(crowded=self.crowded)
                    | {
                        "name": each.name,
                        "legendgroup": each.name,
                        "xaxis": f"x{suffix}",
                        "yaxis": f"y{suffix}",
                        **({"customdata": typed_array(each.numbers, "i4")} if each.numbers else {}),
                        **({} if each.hover else {"hoverinfo": "skip"}),
                        "hovertemplate": each.hover and f"{each.hover}<extra></extra>",
                        **(
                            {"showlegend": False}
                            if each.name in named or not each.in_legend
                            else {}
                        ),
                    }
                )
                named |= {each.name} if each.in_legend else set()
            anchor = {"above": {"yanchor": "bottom"}, "right": {"xanchor": "left"}}[panel.note_side]
            layout["annotations"] += [
                {"x": x, "y": y, "text": escape_plotly_text(text), "showarrow": False,
                 "xref": f"x{suffix}", "yref": f"y{suffix}", **anchor}
                for x, y, text in panel.notes
            ]  # fmt: skip
        return {"data": data, "layout": layout}


def _plotly_colour(part: str, settings: dict[str, Any], colour: str) -> dict[str, Any]:
    """Return the settings of a marker or line; the page colours what is marked as ink."""
    if colour == INK:
        return {part: settings, "meta": "ink"}
    return {part: settings | {"color": colour}}


def style_axes(axes: Axes, grid: Literal["both", "x", "y"] = "both") -> Axes:
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


def typed_array(values: Any, kind: str = "f4") -> dict[str, str]:
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
