import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_tf.tracking.names import (
    TIME_TOTAL,
    mlflow_key,
    mlflow_metrics,
    mlflow_params,
    one_line,
)


@pytest.mark.parametrize(
    ("result", "metrics"),
    [
        ({"loss": 0.5, "val_accuracy": np.float32(0.25)}, {"loss": 0.5, "val_accuracy": 0.25}),
        ({"eval": {"auc": 0.5, "by": {"zero": 1}}}, {"eval/auc": 0.5, "eval/by/zero": 1.0}),
        ({"gap": float("-inf")}, {"gap": float("-inf")}),
        (dict(zip("abcdef", [True, np.True_, "text", None, [1.0], {}], strict=True)), {}),
        ({"system/rows_per_s": 9.0, "pid": 7, "config": {"lr": 1}}, {"system/rows_per_s": 9.0}),
        ({"time_total_s": 2.5, "training_iteration": 3, "loss": 1}, {"loss": 1.0, TIME_TOTAL: 2.5}),
    ],
)
def test_the_numbers_that_code_reported_are_metrics_with_the_total_time_last(result, metrics):
    assert list(mlflow_metrics(result).items()) == list(metrics.items())


def test_params_are_flat_text_and_long_values_are_cut():
    config = {"lr": 0.1, "net": {"../blob 😀": "x" * 6001}, "full": "y" * 6000, "none": {}}
    params = mlflow_params(config)
    assert (params["lr"], params["none"], params["full"]) == ("0.1", "{}", "y" * 6000)
    assert params["blob _"].endswith("...")
    assert {len(value) for value in params.values()} == {2, 3, 6000}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("val_accuracy", "val_accuracy"),
        ("lr (adam)", "lr _adam_"),
        ("/a//b/", "a/b"),
        ("../up", "_/up"),
        ("", "_"),
        ("x:y.z-1", "x:y.z-1"),
    ],
)
def test_a_key_is_what_mlflow_takes(name, key):
    assert mlflow_key(name) == key
    long = {mlflow_key("x" * 300 + each) for each in (name, f"{name}b")}
    assert [len(each) for each in long] == [250, 250]


@given(st.text())
def test_a_name_for_people_is_one_line_within_its_length(text):
    line = one_line(text, 50)
    assert line.isprintable()
    assert len(line) <= 50


def test_every_key_that_ray_fills_in_is_known_as_bookkeeping():
    from ray.tune.result import AUTO_RESULT_KEYS, DEBUG_METRICS

    result = dict.fromkeys([*AUTO_RESULT_KEYS, *DEBUG_METRICS], 1)
    assert mlflow_metrics(result) == {TIME_TOTAL: 1.0}
