"""Base class of the report's plots, and their static files: PNG, WebP and SVG."""

import abc
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from tune_tf.report.plots.chart import Chart, draw_chart, plotly_chart
from tune_tf.report.plots.outcome_style import GRID, INK, MUTED
from tune_tf.report.sweep_record import ReportData

_FEW = 300  # trials
_WIDTH = 1200
_DPI = 100

_THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)"}


class Plot(abc.ABC):
    """Plot of a sweep: a chart, or what a class draws itself by both methods.

    Attributes:
        name: Name of its files.
        title: Title of the plot.
        height: Height in pixels; the static plot is 1,200 pixels wide.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    height: int = 620

    def __init__(self, record: ReportData) -> None:
        self.record = record
        #: Whether there are so many trials that marks are small.
        self.crowded = len(record.trials) > _FEW

    @property
    @abc.abstractmethod
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""

    @property
    @abc.abstractmethod
    def reading(self) -> str:
        """Instructions for reading the plot, in a sentence or two."""

    def chart(self) -> Chart:
        """Return the chart."""
        raise NotImplementedError

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty Matplotlib figure."""
        draw_chart(self.chart(), figure)

    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure: its ``data`` and ``layout``."""
        return plotly_chart(self.chart())


class Drawing(Protocol):
    """Object drawable on a figure, such as a :class:`Plot`."""

    @property
    def title(self) -> str:
        """Title of the plot."""

    @property
    def height(self) -> int:
        """Height in pixels for a width of 1,200."""

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""


def draw_static(picture: Drawing) -> Figure:
    """Draw a plot on a new figure, 1,200 pixels wide."""
    figure = Figure(figsize=(_WIDTH / _DPI, picture.height / _DPI), dpi=_DPI, layout="constrained")
    picture.draw(figure)
    figure.suptitle(picture.title, color=INK, fontsize=15, ha="left", x=0.012)
    with _quiet():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")  # one layout is enough for all files
    return figure


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG on white."""
    FigureCanvasAgg(figure)
    with _quiet():
        figure.savefig(path, format="png", facecolor="white", metadata={"Software": None})


def webp_bytes(figure: Figure) -> bytes:
    """Return a figure on white as WebP, a tenth of the size of its PNG."""
    FigureCanvasAgg(figure)
    image = io.BytesIO()
    with _quiet():
        figure.savefig(image, format="webp", facecolor="white", pil_kwargs={"quality": 60})
    return image.getvalue()


def svg_text(figure: Figure) -> str:
    """Return a figure as an ``svg`` element with the colours of the surrounding page."""
    FigureCanvasSVG(figure)
    text = io.StringIO()
    with _quiet():
        figure.savefig(text, format="svg", facecolor="none", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour, variable in _THEMED.items():
        svg = svg.replace(colour, variable)
    return svg


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warning for characters missing from Matplotlib's font, drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
