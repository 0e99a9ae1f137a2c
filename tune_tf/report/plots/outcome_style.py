"""Texts, colours and markers of outcomes in the report."""

from dataclasses import dataclass
from typing import Final

from tune_tf.outcome import Outcome


@dataclass(frozen=True)
class OutcomeStyle:
    """Texts and style of an outcome.

    Colours are distinct under common colour blindness, on white and black; most are from
    https://jfly.uni-koeln.de/color/. Marks are distinct, too.
    """

    word: str  # in legends and tables
    phrase: str  # after a number of trials: ``7 stopped early by the scheduler``
    colour: str
    marker: str  # of Matplotlib
    symbol: str  # of plotly.js, of the same shape


STYLES: Final[dict[Outcome | None, OutcomeStyle]] = {
    Outcome.PRUNED: OutcomeStyle(
        "stopped early", "stopped early by the scheduler", "#E69F00", "v", "triangle-down"
    ),
    Outcome.OUT_OF_BUDGET: OutcomeStyle(
        "out of budget", "cut off by the budget", "#56B4E9", "s", "square"
    ),
    Outcome.DIVERGED: OutcomeStyle("diverged", "diverged (NaN or Inf)", "#CC79A7", "P", "cross"),
    Outcome.OOM: OutcomeStyle("out of memory", "ran out of memory", "#9A4F96", "D", "diamond"),
    Outcome.ERROR: OutcomeStyle("error", "failed with an error", "#D55E00", "X", "x"),
    Outcome.INTERRUPTED: OutcomeStyle("interrupted", "interrupted", "#8C8C8C", "h", "hexagon"),
    None: OutcomeStyle("not ended", "not ended", "#8C8C8C", "h", "hexagon"),
    Outcome.COMPLETED: OutcomeStyle("completed", "completed", "#2484C6", "o", "circle"),
}
"""In drawing order: the most important outcome last, on top."""

INK: Final = "#1f2329"
MUTED: Final = "#5b6470"
GRID: Final = "#d9dee4"
PROMOTED_COLOUR: Final = "#A9B8C4"
