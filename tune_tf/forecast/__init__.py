"""Cost forecast of a sweep, and its comparison with the actual costs."""

from tune_tf.forecast.actuals import (
    FORECAST_FILE,
    Actuals,
    Deviation,
    ForecastWithActuals,
    compare_forecast,
    read_actuals,
    read_forecast,
    settings_digest,
    write_actuals,
    write_forecast,
)
from tune_tf.forecast.forecast import ConfigMeasurement, Forecast, Range

__all__ = [
    "FORECAST_FILE",
    "Actuals",
    "ConfigMeasurement",
    "Deviation",
    "Forecast",
    "ForecastWithActuals",
    "Range",
    "compare_forecast",
    "read_actuals",
    "read_forecast",
    "settings_digest",
    "write_actuals",
    "write_forecast",
]
