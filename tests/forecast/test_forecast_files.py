import json
from dataclasses import replace

import pytest
from forecasts import actuals, forecast

from tune_tf.config import SweepConfig
from tune_tf.forecast import (
    FORECAST_FILE,
    ForecastWithActuals,
    read_actuals,
    read_forecast,
    settings_digest,
    write_actuals,
    write_forecast,
)


@pytest.fixture
def config(tmp_path):
    return SweepConfig.from_dict(
        {
            "name": "small",
            "workload": "models:Mine",
            "objective": {"metric": "val_accuracy", "mode": "max"},
            "space": {"width": {"choice": [16, 32]}},
            "budget": {"num_samples": 4},
            "storage_path": str(tmp_path / "sweeps"),
        }
    )


def test_a_forecast_is_found_again_by_its_settings(config):
    made = forecast(settings_digest=settings_digest(config))
    path = write_forecast(made, config)
    assert path.parent.name == "forecasts"
    assert read_forecast(config) == made


def test_other_settings_have_no_forecast(config):
    write_forecast(forecast(settings_digest=settings_digest(config)), config)
    assert read_forecast(config.model_copy(update={"seed": 9})) is None


def test_a_truncated_forecast_file_is_ignored(config):
    path = write_forecast(forecast(settings_digest=settings_digest(config)), config)
    path.write_text(path.read_text()[:200])
    assert read_forecast(config) is None


def test_it_is_kept_beside_the_sweeps_where_checkpoints_are_elsewhere(
    config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    remote = config.model_copy(update={"storage_path": "s3://bucket/there"})
    assert write_forecast(forecast(), remote).parent == tmp_path / "sweeps" / "forecasts"


def test_forecast_and_actuals_are_read_back_from_the_sweeps_folder(tmp_path):
    settled = ForecastWithActuals(forecast(), actuals())
    write_actuals(tmp_path, settled)
    assert read_actuals(tmp_path) == settled


def test_a_folder_without_forecast_or_with_a_broken_one_has_none(tmp_path):
    assert read_actuals(tmp_path) is None
    (tmp_path / FORECAST_FILE).write_text(json.dumps({"forecast": {}, "actuals": None}))
    assert read_actuals(tmp_path) is None


def test_secrets_of_a_config_are_not_written(tmp_path):
    config = {"url": "postgresql://me:hunter22@host/db"}
    models = (replace(forecast().models[0], config=config),)
    write_actuals(tmp_path, ForecastWithActuals(forecast(models=models), None))
    assert "hunter22" not in (tmp_path / FORECAST_FILE).read_text()
