"""Where forecasts are kept: beside the sweeps, and in the folder of the sweep that they were of."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tune_tf.atomic_files import write_whole
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError
from tune_tf.forecast.actuals import Actuals
from tune_tf.forecast.forecast import Forecast
from tune_tf.secrets import masked

FORECAST = "forecast"  # Tune copies every .json and .pkl of the folder about at a resume
"""Name of the file in a sweep's folder."""

_FOLDER = "forecasts"


@dataclass(frozen=True)
class ForecastWithActuals:
    """A sweep's forecast, and what came of it.

    Args:
        forecast: What was expected.
        outturn: What it was; None as long as nothing is known.
    """

    forecast: Forecast
    outturn: Actuals | None


def settings_digest(config: SweepConfig) -> str:
    """Return what tells the settings of one forecast from those of another."""
    text = json.dumps(config.to_dict(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_forecast(forecast: Forecast, config: SweepConfig) -> Path:
    """Write a forecast beside the sweeps, in place of an earlier one of the same settings.

    Returns:
        The file.

    Raises:
        InvalidSettingsError: It cannot be written.
    """
    path = _path(config, forecast.settings_digest)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, masked(json.dumps(forecast.to_dict(), indent=2, default=str)) + "\n")
    except OSError as error:
        raise InvalidSettingsError([f"{path.parent} cannot be written to: {error}"]) from error
    return path


def read_forecast(config: SweepConfig) -> Forecast | None:
    """Return the forecast that was kept for settings; None where there is none to be read."""
    try:
        data = json.loads(_path(config, settings_digest(config)).read_text())
        return Forecast.from_dict(data)
    except (OSError, ValueError, TypeError, LookupError):
        return None


def write_actuals(folder: Path, settled: ForecastWithActuals) -> None:
    """Write a forecast, with what came of it, into a sweep's folder.

    Raises:
        OSError: It cannot be written.
    """
    data = {
        "forecast": settled.forecast.to_dict(),
        "outturn": settled.outturn.to_dict() if settled.outturn else None,
    }
    write_whole(folder / FORECAST, masked(json.dumps(data, indent=2, default=str)) + "\n")


def read_actuals(folder: Path) -> ForecastWithActuals | None:
    """Return the forecast in a sweep's folder; None where there is none to be read."""
    try:
        data = json.loads((folder / FORECAST).read_text())
        outturn = data["outturn"]
        return ForecastWithActuals(
            Forecast.from_dict(data["forecast"]),
            None if outturn is None else Actuals.from_dict(outturn),
        )
    except (OSError, ValueError, TypeError, LookupError):
        return None


def _path(config: SweepConfig, digest: str) -> Path:
    return config.sweeps_path / _FOLDER / f"{digest}.json"
