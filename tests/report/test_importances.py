"""What the importances rest on."""

import numpy as np
import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.report.plots.importances import importance_shares, plot_importances
from tune_tf.report.plots.plot import NothingToDrawError
from tune_tf.report.report_data import ReportData

SPACE = {
    "x": {"uniform": [0.0, 1.0]},
    "y": {"uniform": [0.0, 1.0]},
    "kind": {"choice": ["a", ["b"], None]},
    "only_a": {"uniform": [0.0, 1.0], "when": {"kind": "a"}},
}


@pytest.fixture
def record(tmp_path):
    """Return a sweep of trials whose value is a function of their config."""

    def of(count, value, outcome=Outcome.COMPLETED):
        told = []
        for number in range(count):
            rng = np.random.default_rng(number)
            config = {
                "x": float(rng.random()),
                "y": float(rng.random()),
                "kind": SPACE["kind"]["choice"][number % 3],
            }
            if config["kind"] == "a":
                config["only_a"] = float(rng.random())
            told.append(Told([value(config)], outcome, config))
        return ReportData.of(sweep_on_disk(tmp_path, told, space=SPACE))

    return of


@pytest.fixture
def shares(record):
    """Return the importances of such trials."""
    return lambda *arguments: importance_shares(record(*arguments))


def test_the_parameter_that_moves_the_metric_is_the_first(shares):
    found = shares(60, lambda config: config["y"] ** 2)
    assert next(iter(found.shares)) == "y"
    assert found.shares["y"] > 0.8
    assert sum(found.shares.values()) == pytest.approx(1)


def test_importances_are_the_same_each_time(shares, tmp_path):
    def value(config):
        return config["x"] + config["y"]

    first = shares(20, value)
    tmp_path.joinpath("small-20260921-101320").rename(tmp_path / "before")
    assert shares(20, value) == first


@pytest.mark.parametrize(("count", "few"), [(11, True), (12, False)])
def test_importances_of_few_trials_are_called_noise(count, few, record):
    caption = plot_importances(record(count, lambda config: config["x"])).caption
    text = "With fewer than 12 trials for 3 parameters even their order is mostly noise."
    assert (text in caption) is few


def test_a_conditional_parameter_is_named_as_left_out(shares):
    found = shares(30, lambda config: config["x"])
    assert found.conditional == ("only_a",)
    assert set(found.shares) == {"x", "y", "kind"}


@pytest.mark.slow
def test_of_many_trials_some_are_taken_evenly(shares):
    found = shares(205, lambda config: config["x"])
    assert (found.num_trials, found.num_suitable) == (200, 205)


@pytest.mark.parametrize(
    ("count", "value", "outcome", "error"),
    [
        (3, 1.0, Outcome.COMPLETED, "only 3 trials completed"),
        (9, 1.0, Outcome.PRUNED, "only 0 trials completed"),
        (9, 1.0, Outcome.COMPLETED, "all completed trials have the same value"),
    ],
)
def test_a_reason_is_given_where_nothing_can_be_compared(shares, count, value, outcome, error):
    with pytest.raises(NothingToDrawError, match=f"^{error}"):
        shares(count, lambda config: value, outcome)
