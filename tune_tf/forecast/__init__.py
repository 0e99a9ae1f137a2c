"""What a sweep is expected to take, where that is kept, and how far off it was."""

from tune_tf.forecast.actuals import Actuals
from tune_tf.forecast.deviation import Deviation, deviations
from tune_tf.forecast.files import (
    FORECAST,
    ForecastWithActuals,
    read_actuals,
    read_forecast,
    settings_digest,
    write_actuals,
    write_forecast,
)
from tune_tf.forecast.forecast import Forecast, ModelForecast
from tune_tf.forecast.range import Range

__all__ = [
    "FORECAST",
    "Actuals",
    "Deviation",
    "Forecast",
    "ForecastWithActuals",
    "ModelForecast",
    "Range",
    "deviations",
    "read_actuals",
    "read_forecast",
    "settings_digest",
    "write_actuals",
    "write_forecast",
]
