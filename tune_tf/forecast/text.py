"""Numbers of a forecast as text."""

from collections.abc import Callable

from tune_tf.forecast.actuals import Deviation
from tune_tf.forecast.range import Range
from tune_tf.formatting import bytes_text, duration


def seconds_text(value: float) -> str:
    """Format seconds in their two largest units: ``3 h 7 min``; below 10 with two digits."""
    return f"{value:.2g} s" if value < 10 else duration(value)


def range_text(value: Range, to_text: Callable[[float], str]) -> str:
    """Format a range as ``31 s (26 s to 45 s)``, or as one number if it is exact."""
    likely, low, high = (to_text(each) for each in (value.likely, value.low, value.high))
    return likely if low == high else f"{likely} ({low} to {high})"


def deviation_texts(deviation: Deviation) -> tuple[str, str]:
    """Format the forecast and the actual value."""
    to_text: Callable[[float], str] = {
        "count": lambda value: f"{value:,.0f}",
        "seconds": seconds_text,
        "bytes": bytes_text,
    }[deviation.unit]
    return range_text(deviation.forecast, to_text), to_text(deviation.actual)
