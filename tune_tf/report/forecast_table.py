"""Table that compares a sweep's forecast with the actual values."""

from dataclasses import dataclass

from tune_tf.forecast import Actuals, Forecast, compare_forecast, read_actuals
from tune_tf.forecast.actuals import deviation_texts
from tune_tf.report.sweep_record import SweepRecord


@dataclass(frozen=True)
class ForecastRow:
    """Forecast, with its range, and actual value of one quantity.

    Args:
        ratio: Expected value divided by the actual one.
        note: Note if the actual value is outside the range.
    """

    what: str
    forecast: str
    actual: str
    ratio: str
    note: str


@dataclass(frozen=True)
class ForecastTable:
    """Rows of forecast and actual values; ``made`` is the time and machine of the forecast."""

    made: str
    rows: tuple[ForecastRow, ...]

    @classmethod
    def of(cls, record: SweepRecord) -> "ForecastTable | None":
        """Return the table; None without a forecast or actual values."""
        settled = read_actuals(record.result.path)
        if settled is None or settled.actuals is None:
            return None
        made_at = settled.forecast.made_at.replace("T", " ")[:16]
        return cls(
            f"{made_at}, on {settled.forecast.machine}",
            _rows(settled.forecast, settled.actuals),
        )


def _rows(forecast: Forecast, actuals: Actuals) -> tuple[ForecastRow, ...]:
    rows = []
    for each in compare_forecast(forecast, actuals):
        expected, actual = deviation_texts(each)
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        note = "" if each.is_within else "outside its range"
        rows.append(ForecastRow(each.what, expected, actual, ratio, note))
    return tuple(rows)
