"""``sweep.py plan`` and what a run makes of it, as a user sees them."""

import json
from pathlib import Path

import pytest

from tune_tf.forecast import read_actuals

ROOT = Path(__file__).parents[3]
DIGITS = str(ROOT / "search_spaces" / "digits_cnn.yaml")
SMALL = (
    "budget.num_samples=2",
    "epochs=2",
    "space.filters.choice=[4,8]",
    "space.optimizer.choice=[sgd,adamw]",
    "max_concurrent_trials=1",
    "mlflow=null",
)

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.slow
def test_plan_draws_a_forecast_and_the_run_reports_its_error(verb, tmp_path):
    code, drawn, err = verb("plan", DIGITS, "--set", *SMALL, cwd=tmp_path)
    assert code == 0, err
    for told in ("largest", "smallest", "wall time", "peak memory per trial", "Assumptions"):
        assert told in drawn
    (kept,) = (tmp_path / "sweeps" / "forecasts").glob("*.json")
    forecast = json.loads(kept.read_text())
    largest, smallest = forecast["models"][:2]
    assert largest["config"]["filters"] == 8
    assert smallest["num_parameters"] < largest["num_parameters"]
    assert forecast["memory_bytes"]["likely"] > 3e8  # TensorFlow alone takes that
    assert forecast["trials"] == {"low": 2.0, "likely": 2.0, "high": 2.0}
    assert 2 <= forecast["epochs"]["low"] <= forecast["epochs"]["high"] <= 4
    assert sum(it["likely"] for it in forecast["phases"].values()) == pytest.approx(
        forecast["wall_s"]["likely"]
    )

    code, out, err = verb("run", DIGITS, "--json", "--set", *SMALL, cwd=tmp_path)

    assert code == 0, err
    result = json.loads(out)
    compared = result["forecast"]
    assert compared["trials"]["actual"] == 2
    assert compared["wall time"]["actual"] > 1
    memory = compared["peak memory of a trial"]
    assert 0.5 < memory["ratio"] < 2  # the machine may be busy: that changes no memory
    settled = read_actuals(Path(result["path"]))
    assert settled is not None
    assert settled.actuals is not None
    assert settled.actuals.closed


BAD = {
    "an unknown key": ("budget.num_sample=3", "num_samples"),
    "a reservation that no node holds": ("resources={cpus: 4096}", "4096"),
    "a model that cannot be built": ("space.filters.choice=[0,8]", "filters=0"),
}


@pytest.mark.parametrize(("setting", "told"), BAD.values(), ids=BAD.keys())
def test_plan_rejects_bad_settings_and_writes_no_forecast(verb, tmp_path, setting, told):
    code, _, err = verb("plan", DIGITS, "--set", *SMALL[:2], setting, cwd=tmp_path)

    assert code == 2
    assert told in err
    assert "Traceback" not in err
    assert not (tmp_path / "sweeps" / "forecasts").exists()
