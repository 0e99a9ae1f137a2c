"""The picture of how a workload scales."""

from itertools import pairwise

from measured_candidates import batch, cores, failed, measured, part, replicas, workers

from tune_tf.estimate.scaling.scaling_plot import ScalingPlot
from tune_tf.report.plots.plot import draw_static, svg_text


def texts(measurements):
    picture = ScalingPlot("any", measurements, on_gpus=False)
    figure = draw_static(picture.title, picture.height, picture.draw)
    assert svg_text(figure).startswith("<svg")
    return {
        text.get_text()
        for axes in figure.axes
        for text in (*axes.texts, *(axes.get_legend().get_texts() if axes.get_legend() else ()))
    }


def test_each_way_to_use_more_devices_is_a_line_with_its_efficiency():
    told = texts([measured(), cores(2, 1.2), replicas(2, 1.5), workers(2, 1.4), batch(2, 1.1)])
    assert {"mirrored", "multi worker", "one replica, more cores"} <= told
    assert {"60%", "75%", "70%"} <= told


def test_it_is_drawn_where_next_to_nothing_could_be_measured():
    assert "mirrored" not in texts([measured(), failed(2, "no room"), part(0.25, 1.0)])


def test_efficiencies_of_close_points_do_not_cover_each_other():
    picture = ScalingPlot(
        "any", [measured(), replicas(2, 1.50), workers(2, 1.51), cores(2, 1.52)], on_gpus=False
    )
    figure = draw_static(picture.title, picture.height, picture.draw)
    heights = sorted(text.xy[1] for text in figure.axes[0].texts)
    apart = min(high - low for low, high in pairwise(heights))
    assert len(heights) == 3
    assert apart > 0.03 * figure.axes[0].get_ylim()[1]
