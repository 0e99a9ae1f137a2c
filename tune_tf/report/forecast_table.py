"""Table that compares a sweep's forecast with the actual values."""

from dataclasses import dataclass

from tune_tf.forecast import Actuals, Forecast, compare_forecast, read_actuals
from tune_tf.forecast.text import deviation_texts
from tune_tf.report.sweep_record import SweepRecord


@dataclass(frozen=True)
class ForecastRow:
    """One number that was forecast.

    Args:
        what: In words.
        forecast: What was expected, with its range.
        actual: What it was.
        ratio: The best guess over what it was.
        note: Where it lies outside the range.
    """

    what: str
    forecast: str
    actual: str
    ratio: str
    note: str


@dataclass(frozen=True)
class ForecastTable:
    """A sweep's forecast beside what came of it.

    Args:
        made: When and on what it was made, in words.
        rows: A row for each number.
    """

    made: str
    rows: tuple[ForecastRow, ...]

    @classmethod
    def of(cls, record: SweepRecord) -> "ForecastTable | None":
        """Return the table; None where nothing was forecast."""
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
