"""Problems that are looked up."""

import json
from pathlib import Path

import numpy as np
import pytest
from sampling import random_values

from tune_tf.errors import InvalidSettingsError
from tune_tf.simulation import read_curve_table

TABLES = Path(__file__).parents[2] / "scripts/bench/tables"
NUM_CONFIGS = {
    "breast_cancer_mlp": 1872,
    "diabetes_regression": 3564,
    "digits_cnn": 1664,
    "digits_mlp": 2160,
    "generated_text": 1404,
    "unbalanced_rows": 1404,
    "wrong_labels": 1650,
}

SPACE = {
    "optimizer": {"choice": ["adam", "sgd"]},
    "learning_rate": {"loguniform": [0.001, 1.0]},
}
AXES = {"optimizer": ["adam", "sgd"], "learning_rate": [0.001, 0.1, 1.0]}


@pytest.fixture
def table(tmp_path):
    """Two iterations of six configs, from 1 to 12 by optimizer, learning rate and iteration."""
    return write(tmp_path / "table.npz", np.arange(1.0, 13).reshape(2, 3, 2))


def write(path, curves, **other):
    logs = np.log(curves)
    description = {
        "name": "small",
        "source": "made up",
        "metric": "val_loss",
        "mode": "min",
        "log_low": 0.0,
        "log_high": float(logs.max()),
        "space": SPACE,
        "axes": AXES,
    }
    codes = np.round(logs / logs.max() * 65535).astype(np.uint16)
    np.savez_compressed(path, curves=codes, description=json.dumps(description | other))
    return path


@pytest.mark.parametrize(
    ("learning_rate", "value"),
    [
        (0.001, 2),
        (0.01, 8**0.5),  # halfway in the logarithms of the rate and of the value
        (0.1, 4),
        (10**-0.5, 24**0.5),
        (1, 6),
    ],
)
def test_a_value_between_two_configs_is_interpolated_on_the_scale_that_it_is_drawn_on(
    table, learning_rate, value
):
    problem = read_curve_table(table)
    config = {"optimizer": "adam", "learning_rate": learning_rate}
    assert problem.value(config, 2) == pytest.approx(value, rel=1e-3)


def test_many_configs_have_the_values_that_each_has(tmp_path):
    space = {**SPACE, "layers": {"int": [1, 5]}, "share": {"uniform": [0.0, 1.0]}}
    axes = {**AXES, "layers": [1, 2, 5], "share": [0.0, 0.5, 1.0]}
    rng = np.random.default_rng(0)
    path = write(tmp_path / "table.npz", rng.uniform(1, 9, (2, 3, 3, 3, 4)), space=space, axes=axes)
    problem = read_curve_table(path)
    values = random_values(problem.space, 50, rng)
    for number, value in enumerate(problem.curve(values, 3)):
        config = {name: column[number].item() for name, column in values.items()}
        assert problem.value(config, 3) == pytest.approx(value)


def test_two_configs_between_the_same_grid_points_differ(table):
    problem = read_curve_table(table)
    first, second = (
        problem.value({"optimizer": "adam", "learning_rate": rate}, 1) for rate in (0.02, 0.021)
    )
    assert first != second


def test_the_limit_is_the_length_of_the_curves_unless_less_is_asked_for(table):
    config = {"optimizer": "sgd", "learning_rate": 1.0}
    assert read_curve_table(table).max_t == 2
    assert read_curve_table(table, max_t=1).value(config, 2) == pytest.approx(11, rel=1e-3)


def test_more_iterations_than_there_are_is_refused(table):
    with pytest.raises(InvalidSettingsError, match=r"max_t=3.*has 2 iterations; ask for 1 to 2"):
        read_curve_table(table, max_t=3)


@pytest.mark.parametrize(("mode", "target"), [("min", 2), ("max", 12)])
def test_the_target_is_that_of_the_best_thousandth(tmp_path, mode, target):
    path = write(tmp_path / "table.npz", np.arange(1.0, 13).reshape(2, 3, 2), mode=mode)
    assert read_curve_table(path).target == pytest.approx(target, rel=1e-2)


@pytest.mark.parametrize("held_out", [False, True])
def test_a_table_tells_whether_something_may_be_tuned_on_it(tmp_path, held_out):
    path = write(tmp_path / "table.npz", np.arange(1.0, 13).reshape(2, 3, 2), held_out=held_out)
    assert read_curve_table(path).held_out is held_out


def test_a_table_that_does_not_tell_may_be_tuned_on(table):
    assert not read_curve_table(table).held_out


def test_a_file_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "table.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(InvalidSettingsError, match="is not a table of learning curves"):
        read_curve_table(path)


def test_a_table_without_a_description_is_refused(tmp_path):
    path = tmp_path / "table.npz"
    np.savez(path, curves=np.zeros((1, 1), np.uint16))
    with pytest.raises(InvalidSettingsError, match=r"not a table.*description"):
        read_curve_table(path)


@pytest.mark.parametrize(("name", "num_configs"), NUM_CONFIGS.items())
def test_a_table_of_the_benchmark_is_small_and_holds_27_epochs(name, num_configs):
    problem = read_curve_table(TABLES / f"{name}.npz")
    assert (TABLES / f"{name}.npz").stat().st_size < 400_000
    assert (problem.name, problem.max_t) == (name, 27)
    assert f"{num_configs} configs" in problem.about


@pytest.mark.parametrize("name", NUM_CONFIGS)
def test_a_thousandth_of_random_configs_reaches_the_target_of_the_benchmarks_table(name):
    problem = read_curve_table(TABLES / f"{name}.npz")
    finals = problem.curve(random_values(problem.space, 200_000, np.random.default_rng(0)), 27)
    best = finals if problem.objective.mode == "min" else -finals
    limit = problem.target if problem.objective.mode == "min" else -problem.target
    assert 0.0007 < (best <= limit).mean() < 0.0014


def test_nothing_may_be_tuned_on_a_third_of_the_tables():
    held_out = {name for name in NUM_CONFIGS if read_curve_table(TABLES / f"{name}.npz").held_out}
    assert held_out == {"breast_cancer_mlp", "generated_text", "unbalanced_rows"}
