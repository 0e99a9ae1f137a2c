"""The plots' figures: what plotly.js is given, and what it shows."""

import plotly.graph_objects as go
import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.report.plots.curves import plot_history
from tune_tf.report.plots.outcome_style import STYLES
from tune_tf.report.plots.parallel_coordinates import plot_parallel_coordinates
from tune_tf.report.plots.scatter_grids import plot_pareto_front
from tune_tf.report.report import PLOTS
from tune_tf.report.report_data import ReportData

TWO = {
    "objective": [{"metric": "loss", "mode": "min"}, {"metric": "accuracy", "mode": "max"}],
}


@pytest.mark.parametrize(
    "kind", [kind for kind in PLOTS if kind.name != "pareto_front"], ids=lambda kind: kind.name
)
def test_plotly_knows_every_word_of_a_figure(usual_sweep, kind):
    figure = kind.plot(ReportData.of(usual_sweep)).drawing.to_plotly()
    assert len(go.Figure(figure).data) == len(figure["data"])


def test_the_front_of_three_objectives_is_drawn_pair_by_pair(tmp_path):
    objective = [*TWO["objective"], {"metric": "size", "mode": "min"}]
    told = [Told([0.1 * at], metrics={"accuracy": at, "size": -at}) for at in range(4)]
    plot = plot_pareto_front(ReportData.of(sweep_on_disk(tmp_path, told, objective=objective)))
    figure = go.Figure(plot.drawing.to_plotly())
    assert {trace.xaxis for trace in figure.data} == {"x", "x2", "x3"}


def test_every_end_has_a_look_of_its_own():
    ends = {outcome: STYLES[outcome] for outcome in Outcome}
    assert len({style.colour for style in ends.values()}) == len(ends)
    assert len({style.marker for style in ends.values()}) == len(ends)


def test_the_line_of_the_best_never_worsens_and_skips_what_was_stopped(tmp_path):
    told = [
        Told([0.3], started_after_s=0),
        Told([0.9], Outcome.PRUNED, started_after_s=10),
        Told([0.2], started_after_s=20),
        Told([0.5], started_after_s=30),
    ]
    times, values = ReportData.of(sweep_on_disk(tmp_path, told)).best_so_far
    assert list(values) == [0.3, 0.5]
    assert list(times) == [2.0, 32.0]


def test_a_small_loss_is_up_where_the_metric_is_minimised(tmp_path):
    told = [Told([1.0]), Told([2.0])]
    result = sweep_on_disk(tmp_path, told, objective={"metric": "loss", "mode": "min"})
    plot = plot_parallel_coordinates(ReportData.of(result))
    last = go.Figure(plot.drawing.to_plotly()).data[0].dimensions
    # The worst line comes first, so that the best is drawn over it.
    assert last[-1].values == {"dtype": "f4", "bdata": "AAAAAAAAgD8="}
    assert last[-1].ticktext[0] == "1"
    assert last[-1].tickvals[0] == 1.0


def test_a_trial_under_the_pointer_tells_its_config(tmp_path):
    told = [Told([0.5], config={"optimizer": "<b>adamw</b>"})]
    plot = plot_history(ReportData.of(sweep_on_disk(tmp_path, told)))
    (text,) = plot.drawing.to_plotly()["data"][0]["text"]
    assert text == (
        "trial 0, completed<br>val_accuracy = 0.5<br>optimizer = &lt;b&gt;adamw&lt;/b&gt;"
    )
