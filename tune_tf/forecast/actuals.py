"""Measured costs of a sweep, compared with its forecast, and the files of forecasts."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from tune_tf.atomic_files import parse_json, warn_of_damage, write_atomically
from tune_tf.config import SweepConfig
from tune_tf.errors import InvalidSettingsError, first_line
from tune_tf.forecast.forecast import Forecast, Range
from tune_tf.formatting import bytes_text, duration
from tune_tf.inspection.reported_results import RESULTS, metric_value, read_last_result
from tune_tf.result_keys import PEAK_MEMORY
from tune_tf.results import SweepResult
from tune_tf.secrets import mask_secrets
from tune_tf.sweep_folder import trial_folder_name


@dataclass(frozen=True)
class Actuals:
    """Measured costs of a sweep."""

    wall_s: float  # since the call of run_sweep, over all sessions
    trials: int
    epochs: int
    memory_bytes: float | None  # the largest that a trial reported, if any did
    disk_bytes: int  # of the sweep's folder
    closed: bool  # report and best model are included

    @classmethod
    def of(cls, result: SweepResult, wall_s: float, *, closed: bool) -> "Actuals":
        """Measure the costs of a sweep from its result and its folder."""
        folders = (result.path / trial_folder_name(trial.number) for trial in result.trials)
        peaks = (metric_value(read_last_result(it / RESULTS), PEAK_MEMORY) for it in folders)
        files = (path for path in result.path.rglob("*") if path.is_file())
        return cls(
            wall_s=wall_s,
            trials=len(result.trials),
            epochs=sum(trial.iterations for trial in result.trials),
            memory_bytes=max((it for it in peaks if isinstance(it, int | float)), default=None),
            disk_bytes=sum(path.lstat().st_size for path in files),
            closed=closed,
        )


@dataclass(frozen=True)
class Deviation:
    """Forecast and actual value of one number, which ``to_text`` formats with its unit."""

    what: str
    to_text: Callable[[float], str]
    forecast: Range
    actual: float

    @property
    def ratio(self) -> float | None:
        """Likely value divided by actual value; None if the latter is zero."""
        return self.forecast.likely / self.actual if self.actual else None

    @property
    def is_within(self) -> bool:
        """Whether the actual value lies in the forecast range."""
        return self.forecast.contains(self.actual)


def compare_forecast(forecast: Forecast, actuals: Actuals) -> tuple[Deviation, ...]:
    """Compare wall time, trials, iterations, memory and disk with the forecast.

    While the report is being written, its share is left out of time and disk.
    """
    wall_s, disk_bytes = forecast.wall_s, forecast.disk_bytes
    if not actuals.closed:
        wall_s = wall_s.minus(forecast.closing_s)
        disk_bytes = disk_bytes.minus(forecast.closing_bytes)
    until = "" if actuals.closed else ", up to this report"
    rows = [
        Deviation(f"wall time{until}", seconds_text, wall_s, actuals.wall_s),
        Deviation("trials", "{:,.0f}".format, forecast.trials, actuals.trials),
        Deviation("iterations", "{:,.0f}".format, forecast.epochs, actuals.epochs),
    ]
    if actuals.memory_bytes is not None:
        memory = forecast.memory_bytes
        rows.append(Deviation("peak memory of a trial", bytes_text, memory, actuals.memory_bytes))
    rows.append(
        Deviation(f"the sweep's folder{until}", bytes_text, disk_bytes, float(actuals.disk_bytes))
    )
    return tuple(rows)


def seconds_text(value: float) -> str:
    """Format seconds in their two largest units: ``3 h 7 min``; below 10 with two digits."""
    return f"{value:.2g} s" if value < 10 else duration(value)


def range_text(value: Range, to_text: Callable[[float], str]) -> str:
    """Format a range as ``31 s (26 s to 45 s)``, or as one number if it is exact."""
    likely, low, high = (to_text(each) for each in (value.likely, value.low, value.high))
    return likely if low == high else f"{likely} ({low} to {high})"


def deviation_texts(deviation: Deviation) -> tuple[str, str]:
    """Format the forecast and the actual value."""
    to_text = deviation.to_text
    return range_text(deviation.forecast, to_text), to_text(deviation.actual)


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
