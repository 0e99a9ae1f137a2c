"""``sweep.py plan`` and ``scale`` as a user sees them."""

import json
from pathlib import Path

import pytest

DIGITS = str(Path(__file__).parents[3] / "search_spaces" / "digits_cnn.yaml")
SMALL = (
    "budget.num_samples=2",
    "epochs=2",
    "space.filters.choice=[4,8]",
    "max_concurrent_trials=1",
    "mlflow=null",
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def test_plan_measures_the_models_and_bounds_the_sweep(verb, tmp_path):
    code, out, err = verb("plan", DIGITS, "--json", *SMALL, cwd=tmp_path)
    assert code == 0, err
    found = json.loads(out)
    smallest, largest = found["models"]
    assert (smallest["config"]["filters"], largest["config"]["filters"]) == (4, 8)
    assert smallest["num_parameters"] < largest["num_parameters"]
    assert largest["costs"]["memory_bytes"] > 3e8  # TensorFlow alone takes that
    assert largest["costs"]["checkpoint_bytes"] > 4 * largest["num_parameters"]
    assert found["epochs"] == 4
    assert found["time_s"] > 4 * largest["costs"]["epoch_s"]
    assert not (tmp_path / "sweeps").exists()


def test_scale_measures_and_advises(verb, sweep_file, tmp_path):
    code, out, err = verb("scale", str(sweep_file), "--max-devices=1", "--json", cwd=tmp_path)
    assert code == 0, err
    found = json.loads(out)
    assert [each["batch_size"] for each in found["rows"]] == [64, 32, 128, 256]
    assert all(each["rows_per_s"] > 0 for each in found["rows"])
    assert found["failures"] == {}
    assert found["config"]["optimizer"] == "adamw"
    assert found["advice"].startswith("Give a trial one core")
