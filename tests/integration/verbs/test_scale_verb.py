"""``sweep.py scale`` from the shell."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.slow
def test_scale_verb_measures_advises_and_records(verb, sweep_file, tmp_path):
    from mlflow import MlflowClient

    code, out, err = verb(
        "scale", str(sweep_file), "--quick", "--max-devices=1", "--json", cwd=tmp_path
    )

    assert code == 0, err
    told = json.loads(out)
    assert [each["what"] for each in told["measurements"]] == [
        "1 replica",
        "batch x 4",
        "25% of the data",
    ]
    assert all(each["rows_per_s"] > 0 for each in told["measurements"])
    assert told["config"]["optimizer"] == "adamw"
    assert told["settings"].startswith("parallelism: {kind: mirrored, num_replicas: 1}")
    folder = Path(told["path"])
    assert folder.parent == tmp_path / "sweeps"
    assert "25% of the data" in (folder / "scale.json").read_text()

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = client.get_run(told["mlflow_run_id"])
    assert run.info.status == "FINISHED"
    assert client.get_experiment(run.info.experiment_id).name == "tiny"
    assert run.data.tags["tune_tf.scale"] == "tiny"
    assert run.data.params["optimizer"] == "adamw"
    curve = client.get_metric_history(run.info.run_id, "batch/rows_per_s")
    assert [point.step for point in curve] == [64, 256]
    names = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert names == {"scale.json"}


BAD = {
    "an unknown key": ("budget.num_sample=3", "num_samples"),
    "a workload that is not there": ("workload=tune_tf.workloads.digits:DigitsMPL", "DigitsMLP"),
    "a store that cannot be": ("mlflow.tracking_uri=gopher://x", "gopher"),
}


@pytest.mark.parametrize(("setting", "told"), BAD.values(), ids=BAD.keys())
def test_wrong_settings_are_refused_as_run_refuses_them(verb, sweep_file, tmp_path, setting, told):
    code, _, err = verb("scale", str(sweep_file), "--set", setting, cwd=tmp_path)

    assert code == 2
    assert told in err
    assert "Traceback" not in err
