"""Base class of the report's plots, drawn both as static and interactive figures."""

import abc
import base64
import html
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tune_tf.report.plots.axis import Axis
from tune_tf.report.plots.outcome_style import GRID, INK, MUTED
from tune_tf.report.sweep_record import SweepRecord

VIRIDIS = ("#443983", "#31688e", "#21918c", "#35b779", "#8fd744")
"""Colours from worst to best: viridis (https://bids.github.io/colormap) without its ends, which are
invisible on black or white."""


class Plot(abc.ABC):
    """Plot of a sweep.

    Attributes:
        name: Name of its files.
        title: Title of the plot.
        height: Height in pixels; the static plot is 1,200 pixels wide.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    height: int = 620

    def __init__(self, record: SweepRecord) -> None:
        self.record = record

    @property
    @abc.abstractmethod
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""

    @property
    @abc.abstractmethod
    def reading(self) -> str:
        """Instructions for reading the plot, in a sentence or two."""

    @abc.abstractmethod
    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty Matplotlib figure."""

    @abc.abstractmethod
    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure: its ``data`` and ``layout``."""


def styled(axes: Axes, grid: str = "both") -> Axes:
    """Apply the report's style to axes: a light grid behind, no frame."""
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    if grid != "none":
        axes.grid(visible=True, axis=grid, color=GRID, linewidth=0.8)  # type: ignore[arg-type]
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


def legend(axes: Axes, **place: Any) -> None:
    """Add a legend to axes that have labelled artists."""
    if axes.get_legend_handles_labels()[0]:
        made = axes.legend(frameon=False, labelcolor=INK, fontsize=10, **place)
        for handle in made.legend_handles:
            if handle is not None:
                handle.set_alpha(1)


def typed(values: Any, kind: str = "f4") -> dict[str, str]:
    """Encode one-dimensional numbers as a typed array of a kind such as ``f4`` or ``i4``.

    plotly.js reads this format fastest.
    """
    array = np.ascontiguousarray(values, dtype=f"<{kind}")
    return {"dtype": kind, "bdata": base64.b64encode(array.tobytes()).decode("ascii")}


def escape_plotly_text(text: str) -> str:
    """Escape a text for plotly.js, which interprets some HTML tags."""
    return html.escape(text, quote=False)


def plotly_axis(axis: Axis, label: str | None = None) -> dict[str, Any]:
    """Return the plotly.js settings of an axis."""
    title = {"text": escape_plotly_text(axis.label if label is None else label)}
    if axis.options is not None:
        ticks, texts = axis.ticks()
        return {
            "title": title,
            "tickvals": ticks,
            "ticktext": [escape_plotly_text(text) for text in texts],
            "range": [axis.low, axis.high],
            "zeroline": False,
        }
    kind = {"type": "log", "dtick": "D1" if _narrow(axis) else 1} if axis.log else {}
    return {"title": title, "zeroline": False, "exponentformat": "power", **kind}


def set_scale(axes: Axes, which: str, axis: Axis) -> None:
    """Apply the log scale or the options of an axis to Matplotlib's axis ``x`` or ``y``."""
    if axis.options is not None:
        ticks, texts = axis.ticks()
        getattr(axes, f"set_{which}ticks")(ticks, labels=texts, parse_math=False)
        getattr(axes, f"set_{which}lim")(axis.low, axis.high)
        if which == "x" and sum(map(len, texts)) > 30:
            axes.tick_params(axis="x", labelrotation=25)
    elif axis.log:
        getattr(axes, f"set_{which}scale")("log")


def with_gaps(lines: Sequence[Any]) -> Any:
    """Join lines into one array with a NaN after each, which plotly.js draws as a gap."""
    if not lines:
        return np.empty(0)
    return np.concatenate([part for line in lines for part in (line, [np.nan])])


def _narrow(axis: Axis) -> bool:
    """Return whether a logarithmic axis spans less than 1.5 decades."""
    return bool(np.log10(axis.high / axis.low) < 1.5) if axis.low > 0 else False
