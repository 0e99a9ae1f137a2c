"""Forecast files, beside the sweeps and in the folder of a sweep."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from tune_tf.atomic_files import parse_json, warn_of_damage, write_atomically
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, first_line
from tune_tf.forecast.actuals import Actuals
from tune_tf.forecast.forecast import Forecast
from tune_tf.secrets import mask_secrets

FORECAST_FILE = "forecast"  # Tune would copy .json files at a resume
"""Name of the forecast in a sweep's folder."""

_FOLDER = "forecasts"

FileContent = TypeVar("FileContent")


@dataclass(frozen=True)
class ForecastWithActuals:
    """Forecast of a sweep beside its actual costs; None if unknown."""

    forecast: Forecast
    actuals: Actuals | None


def settings_digest(config: SweepConfig) -> str:
    """Return the digest of the settings that names the file of their forecast."""
    text = json.dumps(config.to_dict(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_forecast(forecast: Forecast, config: SweepConfig) -> Path:
    """Write a forecast beside the sweeps, replacing one for the same settings; return its path."""
    path = _path(config, forecast.settings_digest)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, forecast)
    except OSError as error:
        raise InvalidSettingsError([f"{path.parent} cannot be written to: {error}"]) from error
    return path


def read_forecast(config: SweepConfig) -> Forecast | None:
    """Read the forecast of a config; None if missing or damaged."""
    return _read(_path(config, settings_digest(config)), Forecast)


def write_actuals(folder: Path, forecast_with_actuals: ForecastWithActuals) -> None:
    """Write a forecast and the actual costs into a sweep's folder."""
    _write(folder / FORECAST_FILE, forecast_with_actuals)


def read_actuals(folder: Path) -> ForecastWithActuals | None:
    """Read forecast and actual costs from a sweep's folder; None if missing or damaged."""
    return _read(folder / FORECAST_FILE, ForecastWithActuals)


def _write(path: Path, data: Forecast | ForecastWithActuals) -> None:
    write_atomically(path, mask_secrets(json.dumps(asdict(data), indent=2, default=str)) + "\n")


def _read(path: Path, kind: type[FileContent]) -> FileContent | None:
    try:
        return TypeAdapter(kind).validate_python(parse_json(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, OverflowError) as error:
        warn_of_damage(path, f"is damaged and not used: {first_line(error)}")
        return None


def _path(config: SweepConfig, digest: str) -> Path:
    return config.sweeps_path / _FOLDER / f"{digest}.json"
