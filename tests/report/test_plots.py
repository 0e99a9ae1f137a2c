"""The plots: which trials they show, how, and why they show nothing."""

import re

import numpy as np
import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.outcome_style import STYLES
from tune_tf.report.plots import draw_plots
from tune_tf.report.report_data import ReportData

SPACE = {
    "x": {"uniform": [0.0, 1.0]},
    "y": {"loguniform": [1e-3, 1.0]},
    "kind": {"choice": ["a", ["b"], None]},
    "only_a": {"uniform": [0.0, 1.0], "when": {"kind": "a"}},
}


@pytest.fixture
def plots(tmp_path):
    """Return the plots of told trials by title."""

    def of(*told, **settings):
        return draw_plots(ReportData.of(sweep_on_disk(tmp_path, told, **settings)))

    return of


def spread(count, value, **more):
    """Return trials whose value is a function of their config."""
    told = []
    for number in range(count):
        rng = np.random.default_rng(number)
        config = {"x": float(rng.random()), "y": float(10 ** rng.uniform(-3, 0))}
        config["kind"] = SPACE["kind"]["choice"][number % 3]
        told.append(Told([value(config)], config=config, **more))
    return told


def test_the_line_of_the_best_never_worsens_and_skips_what_was_stopped(plots):
    told = [Told([0.3]), Told([0.9], Outcome.PRUNED), Told([0.2]), Told([0.5])]
    (figure,) = plots(*told)["History"].figures
    (line,) = figure.select_traces({"mode": "lines"})
    assert list(line.y) == [0.3, 0.3, 0.3, 0.5]
    (stopped,) = figure.select_traces({"name": "stopped early"})
    assert (list(stopped.x), list(stopped.y)) == ([1], [0.9])


def test_curves_are_in_the_colours_of_outcomes_and_the_best_is_on_top(plots):
    told = [Told([0.3, 0.9]), Told([0.2, 0.1], Outcome.DIVERGED), Told([0.1], Outcome.PRUNED)]
    (figure,) = plots(*told)["Learning curves"].figures
    colours = {line.name: line.line.color for line in figure.data}
    assert colours == {
        "Trial0": STYLES["completed"].colour,
        "Trial1": STYLES["diverged"].colour,
        "Trial2": STYLES["pruned"].colour,
    }
    assert figure.data[-1].name == "Trial0"


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_parameter_that_moves_the_metric_is_the_most_important(plots, mode):
    sign = -1 if mode == "max" else 1
    told = spread(80, lambda config: sign * (config["x"] - 0.2) ** 2)
    objective = {"metric": "m", "mode": mode}
    (figure,) = plots(*told, space=SPACE, objective=objective)["Importances"].figures
    (bars,) = figure.data
    shares = dict(zip(bars.y, bars.x, strict=True))
    assert max(shares, key=shares.get) == "x"
    assert shares["x"] > 0.5
    assert set(shares) == set(SPACE) - {"only_a"}
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("told", "settings", "title", "reason"),
    [
        ([Told([], Outcome.ERROR)], {}, "History", "no trial reported a finite val_accuracy"),
        ([Told([0.5])], {"space": {"a": 1}}, "Slices", "nothing is searched but constants"),
        ([Told([0.5])] * 3, {}, "Importances", "4 completed .* not 3 completed trials"),
        ([Told([0.5])] * 9, {}, "Importances", "differ .* in no parameter"),
        ([Told([0.5], Outcome.PRUNED)] * 9, {}, "Importances", "not 0 completed trials"),
        ([Told([], Outcome.ERROR)], {}, "Learning curves", "no trial's folder holds a result"),
        ([Told([], Outcome.ERROR)], {}, "Timeline", "no trial's start and end are known"),
    ],
)
def test_a_reason_is_given_where_nothing_can_be_drawn(plots, told, settings, title, reason):
    plot = plots(*told, **settings)[title]
    assert not plot.figures
    assert re.search(reason, plot.caption)


def test_slices_show_each_trial_with_the_parameter_on_its_scale(plots):
    told = spread(6, lambda config: config["x"], outcome=Outcome.PRUNED)
    (figure,) = plots(*told, Told([0.3], config={"x": 0.3}), space=SPACE)["Slices"].figures
    axes = {axis.title.text: axis.type for axis in figure.select_xaxes()}
    assert axes == {"kind": "category", "x": None, "y": "log"}
    assert [len(marks.x) for marks in figure.data] == [6, 7, 6]
    stopped, completed = STYLES["pruned"].colour, STYLES["completed"].colour
    assert list(figure.data[1].marker.color) == [stopped] * 6 + [completed]


def test_the_timeline_has_a_bar_from_start_to_end_of_each_trial(plots):
    told = [
        Told([0.1] * 3, started_after_s=0),
        Told([0.1], Outcome.ERROR, started_after_s=6),
        Told([0.1], None, started_after_s=8),
        Told([], Outcome.ERROR),
    ]
    (figure,) = plots(*told)["Timeline"].figures
    bars = {bars.y[0]: (bars.x[0], bars.marker.color[0]) for bars in figure.data}
    assert bars == {
        0: (6000, STYLES["completed"].colour),
        1: (2000, STYLES["error"].colour),
        2: (2000, STYLES["interrupted"].colour),
    }
