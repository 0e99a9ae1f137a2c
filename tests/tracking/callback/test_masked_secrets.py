"""Nothing that a sweep writes holds a secret that it came across."""

import logging
import sys
from pathlib import Path

import pytest

URI_PASSWORD = "uri-Passw0rd-Planted"
STORAGE_PASSWORD = "storage-Passw0rd-Planted"
ENV_TOKEN = "env-T0ken-Planted"
IN_THE_ERROR = "AKIA" + "PLANTED7" * 2
IN_THE_CONFIG = "ghp_" + "Planted7" * 5
SECRETS = (URI_PASSWORD, STORAGE_PASSWORD, ENV_TOKEN, IN_THE_ERROR)
NAMES = (
    *("password", "db_password", "passwords", "passwd", "passphrase", "pwd", "db_pwd", "pass"),
    *("token", "tokens", "accessToken", "hf-token", "auth", "basic_auth", "auth_key", "authKeys"),
    *("api_key", "apiKey", "api-keys", "access_key", "private_key", "secret_key", "encryption_key"),
    *("aws_secret_access_key", "key_id", "secret", "client_secret", "secrets", "credential"),
    *("credentials", "CREDENTIALS"),
)
IN_THE_DATA = {name: f"plain words of {name}" for name in NAMES}


def _files_with(secret, *folders):
    return [
        str(path)
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]


@pytest.fixture
def written(inline, store_uri, client, tmp_path, monkeypatch, caplog, capfd):
    """Run a sweep that comes across secrets; return where it has written, and what it has said."""
    from ray import tune

    from tune_tf.config import SweepConfig
    from tune_tf.sweep_folder import SweepFolder
    from tune_tf.tracking import MLflowCallback, SweepDetails, runs

    monkeypatch.setenv("PLANTED_API_TOKEN", ENV_TOKEN)
    monkeypatch.setenv("STORAGE", STORAGE_PASSWORD)
    monkeypatch.setenv("TRACKING", URI_PASSWORD)
    monkeypatch.setattr(runs, "connect", lambda uri: client)
    config = SweepConfig.from_dict(
        {
            "name": "digits",
            "workload": "somewhere:Workload",
            "data": {"path": "a.csv", "servers": [{"nested": dict(IN_THE_DATA)}]},
            "objective": {"metric": "loss", "mode": "min"},
            "space": {"rate": {"choice": [1.0, 2.0]}},
            "budget": {"num_samples": 2},
            "storage_path": str(tmp_path / "sweeps"),
            "searcher": {"storage": "postgresql://ann:${STORAGE}@127.0.0.1:1/optuna"},
            "mlflow": {
                "tracking_uri": "http://ann:${TRACKING}@127.0.0.1:1",
                "experiment_name": "digits",
            },
        }
    )
    folder = SweepFolder.create(config, tmp_path)

    def train(config):
        tune.report({"loss": config["rate"]})
        if config["rate"] == 2.0:
            sys.stdout.write("\n".join(IN_THE_DATA.values()))
            others = "; ".join(IN_THE_DATA.values())
            raise ValueError(f"no access with {IN_THE_ERROR} and {ENV_TOKEN}: {others}")

    with caplog.at_level(logging.DEBUG, logger="tune_tf"):
        analysis = tune.run(
            train,
            name=folder.sweep_id,
            storage_path=str(tmp_path / "sweeps"),
            config={"rate": tune.grid_search([1.0, 2.0]), "key": IN_THE_CONFIG},
            callbacks=[
                MLflowCallback(
                    folder.tracking_uri,
                    "digits",
                    folder.sweep_id,
                    sweep_id=folder.sweep_id,
                    tags={"from": f"Authorization: Bearer {ENV_TOKEN}"},
                    details=SweepDetails(texts={"sweep.yaml": config.to_yaml()}),
                )
            ],
            raise_on_failed_trial=False,
            verbose=0,
        )
    staging = Path(analysis.trials[0].local_experiment_path)
    ours = "\n".join(record.getMessage() for record in caplog.records if "tune_tf" in record.name)
    return folder.path, staging, ours


def test_no_planted_secret_is_in_anything_that_a_sweep_wrote(written, tmp_path, client):
    from ray.tune import ExperimentAnalysis

    _, staging, said = written
    runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    (failed,) = [run for run in runs if run.info.status == "FAILED"]
    assert "no access with *** and ***" in failed.data.tags["tune_tf.stop_cause"]
    found = {secret: _files_with(secret, tmp_path, staging) for secret in SECRETS}
    assert found == {secret: [] for secret in SECRETS}
    assert not [secret for secret in SECRETS if secret in said]
    found = {name: _files_with(secret, tmp_path, staging) for name, secret in IN_THE_DATA.items()}
    own = {str(written[0] / name) for name in ("sweep.yaml", "sweep-info")}
    assert set().union(*found.values()) == own
    assert written[0].stat().st_mode & 0o077 == 0  # its owner's alone
    (failed,) = [
        trial for trial in ExperimentAnalysis(str(written[0])).trials if trial.num_failures
    ]
    assert "ValueError: no access with *** and ***" in str(failed.get_error())
    # Tune itself needs a config whole, to go on with; what is written of it for people is masked.
    with_config = _files_with(IN_THE_CONFIG, tmp_path)
    assert with_config
    assert not [path for path in with_config if "mlruns" in path or "mlflow" in Path(path).name]
