"""Files of a plot: dense marks are pixels, drawn once, in the same places as others."""

import functools

import numpy as np
import pytest
from matplotlib.artist import allow_rasterization
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image

from tune_tf.report.plots.axis import Axis, options_axis
from tune_tf.report.plots.chart import Bars, Chart, Panel, style_axes
from tune_tf.report.plots.plot import draw_static, svg_text, write_png

LINES = np.random.default_rng(0).random((50, 9, 2))


def draw_lines(figure, kind=LineCollection, *, rasterized):
    for axes in figure.subplots(1, 2):
        style_axes(axes)
        axes.add_collection(kind(LINES, colors="#2484C6", alpha=0.75, rasterized=rasterized))
        axes.plot([0, 1], [0, 1], color="black", linewidth=3)
        axes.autoscale_view()


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def test_dense_lines_stand_where_others_do(tmp_path):
    for rasterized in (False, True):
        draw = functools.partial(draw_lines, rasterized=rasterized)
        figure = draw_static("lines", 420, draw)
        write_png(figure, tmp_path / f"{rasterized}.png")
    plain, dense = pixels(tmp_path / "False.png"), pixels(tmp_path / "True.png")
    assert (plain != 255).any()
    assert np.abs(plain - dense).max() < 10  # the round-off of what is half transparent


def test_dense_lines_are_drawn_once_for_all_files(tmp_path):
    class Counted(LineCollection):
        num_drawn = 0

        @allow_rasterization
        @allow_rasterization
        def draw(self, renderer):
            Counted.num_drawn += 1
            super().draw(renderer)

    figure = draw_static("lines", 420, lambda it: draw_lines(it, Counted, rasterized=True))
    before = Counted.num_drawn
    write_png(figure, tmp_path / "lines.png")
    assert svg_text(figure).count("<image") == 2
    assert Counted.num_drawn == before


@pytest.mark.parametrize("horizontal", [True, False])
def test_thousands_of_bars_are_one_collection_without_a_margin_before_them(horizontal):
    bars = Bars(
        name="completed", colour="#2484C6", places=[0, 1] * 1000, starts=range(2000),
        lengths=[1] * 2000, horizontal=horizontal,
    )  # fmt: skip
    along, across = Axis("seconds"), options_axis("", ["a", "b"])
    panel = Panel(*((along, across) if horizontal else (across, along)), [bars])
    figure = Figure()
    Chart([panel], crowded=True).draw(figure)
    (axes,) = figure.axes
    low, high = axes.get_xlim() if horizontal else axes.get_ylim()
    assert (len(axes.patches), len(axes.collections)) == (0, 1)
    assert low == 0
    assert high == pytest.approx(2100)
