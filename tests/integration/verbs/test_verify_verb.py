"""A reproducible sweep, and what `verify` finds when its folder was changed."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.tf, pytest.mark.slow]


@pytest.mark.usefixtures("ray_cluster")
def test_a_sweep_is_run_again_and_its_first_difference_is_named(verb, sweep_file, tmp_path):
    settings = ["reproducible=true", "mlflow=null", "epochs=3", "budget.num_samples=3"]
    option = "space:\n  block: {choice: [{width: 4}, {width: 8}]}\n"
    sweep_file.write_text(sweep_file.read_text().replace("space:\n", option))
    assert "block" in sweep_file.read_text()
    one = [*settings, "max_concurrent_trials=1"]
    code, out, err = verb("run", str(sweep_file), "--json", *one, cwd=tmp_path)
    assert code == 0, err
    ran = json.loads(out)
    folder, found = Path(ran["path"]), ran["fingerprint"]
    assert found["environment"]["CPUs per trial"] == "1"
    assert found["reasons"] == []

    code, out, err = verb("verify", "tiny", cwd=tmp_path)
    assert code == 0, err
    identical, other = out.splitlines()
    assert identical == f"identical: 3 trials, {found['num_results']} results"
    rerun = Path(other.removeprefix("compared with "))
    assert rerun.parent == folder.parent

    options = [*settings, "max_concurrent_trials=2", "name=two"]
    code, out, err = verb("run", str(sweep_file), "--json", *options, cwd=tmp_path)
    assert code == 0, err
    assert json.loads(out)["fingerprint"]["digest"] == found["digest"]

    with contextlib.closing(sqlite3.connect(folder / "sweep.db", isolation_level=None)) as database:
        database.execute(
            "UPDATE result SET metrics = json_set(metrics, '$.val_accuracy', 2.0) WHERE trial = 2 "
            "AND metrics ->> 'training_iteration' = 1"
        )
    code, out, _ = verb("verify", str(folder), "--with", str(rerun), "--json", cwd=tmp_path)
    assert code == 1
    data = json.loads(out)
    assert data["difference"].startswith("in trial 2, iteration 1: val_accuracy 2.0 and 0.")
