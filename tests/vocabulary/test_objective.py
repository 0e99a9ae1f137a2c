"""Objective: a metric and a direction."""

import pytest

from tune_tf.errors import InvalidSettingsError, UnknownMetricError
from tune_tf.objective import Objective, likely_mode


@pytest.mark.parametrize(
    ("metric", "mode", "match"),
    [
        pytest.param("", "max", "metric: must not be empty", id="empty"),
        pytest.param(None, "max", "metric: must be text, not nothing", id="none"),
        pytest.param("loss", "maximize", "mode: must be 'min' or 'max', not 'maximize'", id="mode"),
        pytest.param("", "up", "2 errors", id="both"),
    ],
)
def test_bad_objectives_are_refused(metric, mode, match):
    with pytest.raises(InvalidSettingsError, match=match):
        Objective(metric, mode)


@pytest.mark.parametrize(
    ("mode", "first", "second", "better"),
    [
        ("max", 0.9, 0.8, True),
        ("max", 0.8, 0.8, False),
        ("min", 0.8, 0.9, True),
        ("min", 0.8, 0.8, False),
        ("min", float("nan"), 0.8, False),
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


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("val_loss", "min"),
        ("val_score_loss", "min"),
        ("accuracy_loss_score", "max"),
        ("val_AUC_1", "max"),
        ("val_mean_io_u", "max"),
        ("val_gain", None),
        ("cosine_similarity", None),  # the metric is maximized, the loss of that name minimized
        ("", None),
    ],
)
def test_the_last_telling_word_of_a_metric_gives_its_mode(metric, mode):
    assert likely_mode(metric) == mode


@pytest.mark.tf
def test_no_metric_of_keras_is_given_a_wrong_mode():
    import inspect

    import keras

    given = {"num_classes": 2, "target_class_ids": [0], "fn": None}
    given |= dict.fromkeys(("recall", "precision", "sensitivity", "specificity"), 0.5)
    names = {"up": "max", "down": "min"}
    checked = 0
    for kind in vars(keras.metrics).values():
        if not (isinstance(kind, type) and issubclass(kind, keras.metrics.Metric)):
            continue
        required = [
            n for n, p in inspect.signature(kind).parameters.items() if p.default is p.empty
        ]
        metric = kind(**{name: given[name] for name in required if name in given})
        direction = names.get(getattr(metric, "_direction", None))
        mode = likely_mode(f"val_{metric.name}")
        checked += direction == mode
        assert direction is None or mode in (direction, None), metric.name
    assert checked >= 30
