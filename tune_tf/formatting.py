"""Values as a reader of the report sees them."""

import json
import math
from typing import Any


def value_text(value: Any, limit: int = 80) -> str:
    """Return a value as text: numbers with six digits, text as it is, the rest as JSON.

    Args:
        value: A config's value, or a metric.
        limit: Characters after which a text is cut, and marked so.
    """
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units: ``3 h 7 min``."""
    if not math.isfinite(seconds):
        return "an unknown time"
    whole = round(seconds)
    if whole < 1:
        return f"{seconds:.2g} s"
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds_left = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds_left, "s")]
    first = next(index for index, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def counted(count: int, noun: str) -> str:
    """Return ``1 trial``, ``2,000 trials``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
