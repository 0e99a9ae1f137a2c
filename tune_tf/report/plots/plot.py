"""A plot of the report, and its static files: PNG, WebP and SVG."""

import abc
import base64
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from tune_tf.report.plots.outcome_style import GRID, INK, MUTED

_WIDTH = 1200
_DPI = 100

_THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)"}


class NothingToDrawError(Exception):
    """Reason, as a phrase, why a sweep has no data for a plot."""


class Drawing(abc.ABC):
    """Content of a plot, drawn by Matplotlib and by plotly.js."""

    @abc.abstractmethod
    def draw(self, figure: Figure) -> None:
        """Draw on an empty Matplotlib figure."""

    @abc.abstractmethod
    def to_plotly(self) -> dict[str, Any]:
        """Return a plotly.js figure: its ``data`` and ``layout``."""


@dataclass(frozen=True)
class Plot:
    """Plot of a sweep with instructions for reading it, and its height in pixels."""

    caption: str
    drawing: Drawing
    height: int = 620


def draw_static(title: str, height: int, draw: Callable[[Figure], None]) -> Figure:
    """Draw on a new figure, 1,200 pixels wide and ``height`` pixels high."""
    figure = Figure(figsize=(_WIDTH / _DPI, height / _DPI), dpi=_DPI, layout="constrained")
    draw(figure)
    figure.suptitle(title, color=INK, fontsize=15, ha="left", x=0.012)
    with _quiet():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")  # one layout is enough for all files
    _rasterize(figure)
    return figure


class _Pixels(Artist):
    """Pixels of a figure at ``_DPI``, with their left lower corner."""

    def __init__(self, whole: Figure, pixels: NDArray[np.uint8], x: int, y: int) -> None:
        super().__init__()
        self.zorder = 1  # above the grid, below lines and texts
        self._whole, self._pixels, self._x, self._y = whole, pixels, x, y

    def draw(self, renderer: RendererBase) -> None:
        """Draw on the canvas of a file."""
        scale = self._whole.dpi / _DPI  # SVG has 72 dpi
        renderer.draw_image(renderer.new_gc(), self._x * scale, self._y * scale, self._pixels)


def _rasterize(figure: Figure) -> None:
    """Draw what is drawn as pixels, such as thousands of lines, once for all files."""
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for axes in figure.axes:
        dense = [each for each in axes.collections if each.get_rasterized()]
        if not dense:
            continue
        renderer.clear()
        for each in sorted(dense, key=Artist.get_zorder):
            each.set_rasterized(False)
            each.draw(renderer)
            each.remove()
        left, lower, right, upper = map(int, axes.bbox.extents)
        upwards = np.asarray(renderer.buffer_rgba())[::-1]
        inside = upwards[lower : upper + 1, left : right + 1].copy()
        axes.add_artist(_Pixels(figure, inside, left, lower))


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG on white."""
    with _quiet():
        figure.savefig(path, format="png", facecolor="white", metadata={"Software": None})


def webp_uri(png: Path) -> str:
    """Return a picture as WebP in a data URI, a tenth of the size of its PNG."""
    webp = io.BytesIO()
    with Image.open(png) as image:
        image.save(webp, "webp", quality=60)
    return f"data:image/webp;base64,{base64.b64encode(webp.getvalue()).decode('ascii')}"


def svg_text(figure: Figure) -> str:
    """Return a figure as an ``svg`` element with the colours of the surrounding page."""
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
