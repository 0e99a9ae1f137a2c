"""A picture of a report, drawn twice from the same numbers: still and interactive."""

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
"""Worst to best value: viridis (https://bids.github.io/colormap) without the ends that would vanish
on black or on white."""


class Picture(abc.ABC):
    """One picture of a sweep.

    Args:
        record: The sweep.

    Attributes:
        name: Of its files.
        title: What it shows.
        height: Pixels of the still picture, which is 1,200 wide, and of the interactive one.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    height: int = 620

    def __init__(self, record: SweepRecord) -> None:
        self.record = record

    @property
    @abc.abstractmethod
    def missing(self) -> str | None:
        """Why there is nothing to draw; None where there is."""

    @property
    @abc.abstractmethod
    def reading(self) -> str:
        """How to read it, in a sentence or two."""

    @abc.abstractmethod
    def draw(self, figure: Figure) -> None:
        """Draw it on an empty figure of Matplotlib's."""

    @abc.abstractmethod
    def interactive(self) -> dict[str, Any]:
        """Return it as a figure of plotly.js: its ``data`` and ``layout``."""


def styled(axes: Axes, grid: str = "both") -> Axes:
    """Give axes the looks of the report: a light grid behind, no frame."""
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
    """Name both axes; a dollar sign in a name is no formula."""
    axes.set_xlabel(x, color=INK, fontsize=11, parse_math=False)
    axes.set_ylabel(y, color=INK, fontsize=11, parse_math=False)


def legend(axes: Axes, **place: Any) -> None:
    """Put a legend on axes that have anything to tell."""
    if axes.get_legend_handles_labels()[0]:
        made = axes.legend(frameon=False, labelcolor=INK, fontsize=10, **place)
        for handle in made.legend_handles:
            if handle is not None:
                handle.set_alpha(1)


def typed(values: Any, kind: str = "f4") -> dict[str, str]:
    """Return numbers as plotly.js reads them fastest: the bytes of a typed array.

    Args:
        values: Numbers of one dimension.
        kind: ``f4``, ``f8``, ``i4``, ...
    """
    array = np.ascontiguousarray(values, dtype=f"<{kind}")
    return {"dtype": kind, "bdata": base64.b64encode(array.tobytes()).decode("ascii")}


def plain_axis_value(text: str) -> str:
    """Return a text so that plotly.js, which knows some tags, shows it as it is."""
    return html.escape(text, quote=False)


def plotly_axis(axis: Axis, label: str | None = None) -> dict[str, Any]:
    """Return the settings of a plotly.js axis for an axis of ours."""
    title = {"text": plain_axis_value(axis.label if label is None else label)}
    if axis.options is not None:
        ticks, texts = axis.ticks()
        return {
            "title": title,
            "tickvals": ticks,
            "ticktext": [plain_axis_value(text) for text in texts],
            "range": [axis.low, axis.high],
            "zeroline": False,
        }
    kind = {"type": "log", "dtick": "D1" if _narrow(axis) else 1} if axis.log else {}
    return {"title": title, "zeroline": False, "exponentformat": "power", **kind}


def set_scale(axes: Axes, which: str, axis: Axis) -> None:
    """Make an axis of Matplotlib's logarithmic, or a choice, as an axis of ours is.

    Args:
        axes: Where.
        which: ``x`` or ``y``.
        axis: Ours.
    """
    if axis.options is not None:
        ticks, texts = axis.ticks()
        getattr(axes, f"set_{which}ticks")(ticks, labels=texts, parse_math=False)
        getattr(axes, f"set_{which}lim")(axis.low, axis.high)
        if which == "x" and sum(map(len, texts)) > 30:
            axes.tick_params(axis="x", labelrotation=25)
    elif axis.log:
        getattr(axes, f"set_{which}scale")("log")


def with_gaps(lines: Sequence[Any]) -> Any:
    """Return lines as one array with a NaN after each, where plotly.js lifts the pen."""
    if not lines:
        return np.empty(0)
    return np.concatenate([part for line in lines for part in (line, [np.nan])])


def _narrow(axis: Axis) -> bool:
    """Return whether a logarithmic axis has hardly a power of ten on it."""
    return bool(np.log10(axis.high / axis.low) < 1.5) if axis.low > 0 else False
