"""What a sweep is expected to take, where that is kept, and how far off it was."""

from tune_tf.forecast.actuals import Outturn
from tune_tf.forecast.deviation import Deviation, deviations
from tune_tf.forecast.files import (
    FORECAST,
    Settled,
    keep_forecast,
    kept_forecast,
    read_settled,
    settings_digest,
    write_settled,
)
from tune_tf.forecast.forecast import Forecast, ModelForecast
from tune_tf.forecast.range import Range

__all__ = [
    "FORECAST",
    "Deviation",
    "Forecast",
    "ModelForecast",
    "Outturn",
    "Range",
    "Settled",
    "deviations",
    "keep_forecast",
    "kept_forecast",
    "read_settled",
    "settings_digest",
    "write_settled",
]
