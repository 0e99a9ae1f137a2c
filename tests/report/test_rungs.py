"""How many trials came to each rung."""

import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.config import parse_scheduler_settings
from tune_tf.outcome import Outcome
from tune_tf.report.plots.rungs import plot_rungs, rungs_of
from tune_tf.report.report_data import ReportData


@pytest.mark.parametrize(
    ("settings", "rungs"),
    [
        ({"name": "asha", "max_t": 20, "grace_period": 2}, (2, 6, 18, 20)),
        ({"name": "fifo"}, ()),
        ({"name": "pbt"}, ()),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_the_rungs_are_those_of_the_scheduler(settings, rungs):
    assert rungs_of(parse_scheduler_settings(settings)) == rungs


@pytest.mark.slow
def test_the_rungs_of_hyperband_are_the_milestones_of_its_brackets():
    assert rungs_of(parse_scheduler_settings({"name": "HyperBandScheduler", "max_t": 9})) == (
        1,
        3,
        9,
    )


def test_a_bar_is_split_into_who_went_on_and_who_ended(tmp_path):
    told = [
        Told([0.1] * 9),
        Told([0.1] * 4, Outcome.ERROR),
        Told([0.1] * 3, Outcome.PRUNED),
        Told([0.1], Outcome.PRUNED),
        Told([], Outcome.ERROR),
    ]
    record = ReportData.of(sweep_on_disk(tmp_path, told))
    figure = plot_rungs(record).drawing.to_plotly()
    assert {bar["name"]: bar["y"] for bar in figure["data"]} == {
        "continued": [3, 1, 0],
        "completed": [0, 0, 1],
        "error": [0, 1, 0],
        "stopped early": [1, 1, 0],
    }
