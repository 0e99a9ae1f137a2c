"""A curve as one line of text."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draw values as a line of bars.

    Args:
        values: Finite values in order.
        width: Maximum number of bars; longer curves are sampled evenly, ends included.
    """
    if len(values) > width:
        step = (len(values) - 1) / (width - 1)
        values = [values[round(place * step)] for place in range(width)]
    if not values:
        return ""
    halves = [value / 2 for value in values]  # the difference of two is finite
    low, span = min(halves), max(halves) - min(halves)
    if span == 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round((half - low) / span * (len(_BARS) - 1))] for half in halves)
