"""Numbers of a forecast as people read them."""

from collections.abc import Callable

from tune_tf.forecast.deviation import Deviation
from tune_tf.forecast.range import Range

_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def byte_count(value: float) -> str:
    """Return bytes in the largest unit of which there is one, by thousands: ``1.2 GB``."""
    name, size = next(((n, s) for n, s in _UNITS if value >= s), ("B", 1.0))
    return f"{value / size:.3g} {name}"


def seconds_told(value: float) -> str:
    """Return seconds in their two largest units: ``3 h 7 min``."""
    whole = round(value)
    if whole < 60:
        return f"{value:.2g} s" if value < 10 else f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next(index for index, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def span(value: Range, told: Callable[[float], str]) -> str:
    """Return ``31 s (26 s to 45 s)``, or one number where nothing is unsure."""
    likely, low, high = (told(each) for each in (value.likely, value.low, value.high))
    return likely if low == high else f"{likely} ({low} to {high})"


def told_in_unit(deviation: Deviation) -> tuple[str, str]:
    """Return what was forecast and what it was, as text."""
    told: Callable[[float], str] = {
        "count": lambda value: f"{value:,.0f}",
        "seconds": seconds_told,
        "bytes": byte_count,
    }[deviation.unit]
    return span(deviation.forecast, told), told(deviation.actual)
