"""Forecast files, beside the sweeps and in the folder of a sweep."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tune_tf.atomic_files import write_atomically
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.forecast.actuals import Actuals
from tune_tf.forecast.forecast import Forecast
from tune_tf.secrets import mask_secrets

FORECAST_FILE = "forecast"  # Tune would copy .json files at a resume
"""Name of the forecast in a sweep's folder."""

_FOLDER = "forecasts"


@dataclass(frozen=True)
class ForecastWithActuals:
    """Forecast of a sweep beside its actual costs.

    Args:
        forecast: The forecast.
        actuals: The actual costs; None if unknown.
    """

    forecast: Forecast
    actuals: Actuals | None


def settings_digest(config: SweepConfig) -> str:
    """Return the digest of the settings that names the file of their forecast."""
    text = json.dumps(config.to_dict(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_forecast(forecast: Forecast, config: SweepConfig) -> Path:
    """Write a forecast beside the sweeps, replacing one for the same settings; return its path.

    Raises:
        InvalidSettingsError: The file cannot be written.
    """
    path = _path(config, forecast.settings_digest)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(
            path, mask_secrets(json.dumps(forecast.to_dict(), indent=2, default=str)) + "\n"
        )
    except OSError as error:
        raise InvalidSettingsError([f"{path.parent} cannot be written to: {error}"]) from error
    return path


def read_forecast(config: SweepConfig) -> Forecast | None:
    """Read the forecast of a config; None if missing or damaged."""
    try:
        data = json.loads(_path(config, settings_digest(config)).read_text())
        return Forecast.from_dict(data)
    except (OSError, ValueError, TypeError, LookupError):
        return None


def write_actuals(folder: Path, forecast_with_actuals: ForecastWithActuals) -> None:
    """Write a forecast and the actual costs into a sweep's folder.

    Raises:
        OSError: The file cannot be written.
    """
    data = {
        "forecast": forecast_with_actuals.forecast.to_dict(),
        "actuals": forecast_with_actuals.actuals.to_dict()
        if forecast_with_actuals.actuals
        else None,
    }
    write_atomically(
        folder / FORECAST_FILE, mask_secrets(json.dumps(data, indent=2, default=str)) + "\n"
    )


def read_actuals(folder: Path) -> ForecastWithActuals | None:
    """Read forecast and actual costs from a sweep's folder; None if missing or damaged."""
    try:
        data = json.loads((folder / FORECAST_FILE).read_text())
        actuals = data["actuals"]
        return ForecastWithActuals(
            Forecast.from_dict(data["forecast"]),
            None if actuals is None else Actuals.from_dict(actuals),
        )
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _path(config: SweepConfig, digest: str) -> Path:
    return config.sweeps_path / _FOLDER / f"{digest}.json"
