"""Objective: a metric and a direction."""

import pytest

from tune_tf.errors import InvalidSettingsError, UnknownMetricError
from tune_tf.objective import Objective


@pytest.mark.parametrize(
    ("metric", "mode", "match"),
    [
        pytest.param("", "max", "metric must be the name of a reported metric, not ''", id="empty"),
        pytest.param(None, "max", "metric must be the name .* not None", id="none"),
        pytest.param("loss", "maximize", "mode must be 'min' or 'max', not 'maximize'", id="mode"),
        pytest.param("", "up", "2 errors", id="both"),
    ],
)
def test_bad_objectives_are_refused(metric, mode, match):
    with pytest.raises(InvalidSettingsError, match=match):
        Objective(metric, mode)


@pytest.mark.parametrize(
    ("mode", "first", "second", "better"),
    [
        pytest.param("max", 0.9, 0.8, True, id="max-above"),
        pytest.param("max", 0.8, 0.8, False, id="max-equal"),
        pytest.param("min", 0.8, 0.9, True, id="min-below"),
        pytest.param("min", 0.8, 0.8, False, id="min-equal"),
        pytest.param("min", float("nan"), 0.8, False, id="nan-is-never-better"),
    ],
)
def test_better_is_strict_and_follows_the_mode(mode, first, second, better):
    assert Objective("loss", mode).better(first, second) is better


def test_value_is_read_from_a_result():
    assert Objective("loss", "min").value({"loss": 1, "done": True}) == 1.0


def test_a_missing_metric_names_those_reported():
    match = r"'val_los' is not reported; .* loss, val_loss; did you mean 'val_loss'\?"
    with pytest.raises(UnknownMetricError, match=match):
        Objective("val_los", "min").value({"loss": 1, "val_loss": 2.0, "note": "x"})
