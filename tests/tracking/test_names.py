from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tune_tf.tracking.names import (
    TIME_TOTAL,
    long_params,
    mlflow_key,
    mlflow_metrics,
    mlflow_params,
    one_line,
    safe_file_name,
)


def test_numbers_of_a_result_are_metrics_under_their_own_names():
    result = {"loss": 0.5, "val_accuracy": np.float32(0.25), "epoch": 3}
    assert mlflow_metrics(result) == {"loss": 0.5, "val_accuracy": 0.25, "epoch": 3.0}


@pytest.mark.parametrize(
    "value",
    [True, np.True_, "text", None, [1.0], {}],
    ids=["bool", "numpy bool", "text", "none", "list", "empty mapping"],
)
def test_what_is_not_a_number_is_not_a_metric(value):
    assert mlflow_metrics({"loss": value}) == {}


def test_of_rays_bookkeeping_only_the_total_time_is_logged():
    result = {"time_total_s": 2.5, "pid": 7, "training_iteration": 3, "config": {"lr": 0.1}}
    assert mlflow_metrics(result) == {TIME_TOTAL: 2.5}
    speed = {"perf/rows_per_s": 9.0, "val_loss": 0.5}
    assert mlflow_metrics(speed) == {"system/rows_per_s": 9.0, "val_loss": 0.5}


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


def test_two_long_names_stay_two_within_the_limit():
    first, second = mlflow_key("x" * 300 + "a"), mlflow_key("x" * 300 + "b")
    assert first != second
    assert {len(first), len(second)} == {250}


def test_params_are_flat_text_and_long_values_are_cut():
    params = mlflow_params({"lr": 0.1, "opt": {"name": "sgd"}, "blob": "x" * 7000, "none": {}})
    assert params["lr"] == "0.1"
    assert params["opt/name"] == "sgd"
    assert params["none"] == "{}"
    assert len(params["blob"]) == 6000
    assert params["blob"].endswith("...")


def test_a_value_over_the_limit_is_kept_whole_as_an_artifact():
    config = {"lr": 0.1, "net": {"../blob 😀": "x" * 6001}, "full": "y" * 6000}
    ((path, text),) = long_params(config).items()
    assert path.startswith("params/net_.._blob _-")
    assert path.endswith(".txt")
    assert text == "x" * 6001


@given(st.text(max_size=400))
def test_any_text_gives_a_name_of_one_file_below_its_folder(name):
    safe = safe_file_name(name)
    path = PurePosixPath("/folder", safe)
    assert path.parent == PurePosixPath("/folder")
    assert safe not in (".", "..")
    assert not safe.startswith(".")
    assert len(safe.encode()) <= 200
    assert safe.isprintable()


@given(st.lists(st.text(max_size=300), unique=True, min_size=2, max_size=2))
def test_two_names_give_two_files(names):
    assert safe_file_name(names[0]) != safe_file_name(names[1])


@given(st.text())
def test_a_name_for_people_is_one_line_within_its_length(text):
    line = one_line(text, 50)
    assert line.isprintable()
    assert len(line) <= 50


def test_every_key_that_ray_fills_in_is_known_as_bookkeeping():
    from ray.tune.result import AUTO_RESULT_KEYS, DEBUG_METRICS

    result = dict.fromkeys([*AUTO_RESULT_KEYS, *DEBUG_METRICS], 1)
    assert mlflow_metrics(result) == {TIME_TOTAL: 1.0}
