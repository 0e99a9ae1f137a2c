"""Values, durations, sizes and counts as text for readers."""

import json
import math
import unicodedata
from typing import Any, Final

_BYTE_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))

_ESCAPES: Final = {
    code: repr(chr(code))[1:-1]
    for code in (*range(0x100), 0x61C, *range(0x200B, 0x2070), 0xFEFF, *range(0xD800, 0xE000))
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    and chr(code) not in "\n\t\xad\u200c\u200d"
}
"""Escapes of characters that control a terminal, reverse text, or cannot be encoded."""


def printable(text: str) -> str:
    r"""Escape the control characters of a text but newlines and tabs: ``\x1b[31m``."""
    return text.translate(_ESCAPES)


def csv_cell(value: Any) -> Any:
    """Return numbers and text as they are, lists and mappings as JSON."""
    if value is None or isinstance(value, int | float | str):
        return value
    return json.dumps(value, default=str)


def value_text(value: Any, limit: int = 80) -> str:
    """Format a config value or metric: numbers with six digits, text unchanged, the rest as JSON.

    Text longer than ``limit`` ends in an ellipsis.
    """
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: ``3 h 7 min``."""
    if not math.isfinite(seconds):
        return "an unknown time"
    total = round(seconds)
    if total < 1:
        return f"{seconds:.2g} s"
    days, rest = divmod(total, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds_left = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds_left, "s")]
    first = next(index for index, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def bytes_text(num_bytes: float) -> str:
    """Format bytes in the largest decimal unit that fits: ``1.2 GB``."""
    name, size = next(((n, s) for n, s in _BYTE_UNITS if num_bytes >= s), ("B", 1.0))
    return f"{num_bytes / size:.3g} {name}"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 trial``, ``2,000 trials``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
