"""Words and colours for the states of a trial, in the terminal and in the report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class OutcomeStyle:
    """Texts and colour of a trial's outcome, or of its state before it has ended.

    Colours are distinct under common colour blindness, on white and on black; most are from
    https://jfly.uni-koeln.de/color/.
    """

    word: str  # in tables and keys
    phrase: str  # after a number of trials: ``7 stopped early by the scheduler``
    colour: str


STYLES: Final[Mapping[str, OutcomeStyle]] = {
    "running": OutcomeStyle("running", "running", "#009E73"),
    "pending": OutcomeStyle("pending", "waiting to go on", "#8C8C8C"),
    "paused": OutcomeStyle("paused", "paused by the scheduler", "#8C8C8C"),
    "completed": OutcomeStyle("completed", "completed", "#2484C6"),
    "pruned": OutcomeStyle("stopped early", "stopped early by the scheduler", "#E69F00"),
    "out_of_budget": OutcomeStyle("out of budget", "cut off by the budget", "#56B4E9"),
    "interrupted": OutcomeStyle("interrupted", "interrupted", "#8C8C8C"),
    "diverged": OutcomeStyle("diverged", "diverged (NaN or Inf)", "#CC79A7"),
    "oom": OutcomeStyle("out of memory", "ran out of memory", "#9A4F96"),
    "error": OutcomeStyle("error", "failed with an error", "#D55E00"),
}
"""By state, in the order in which they are listed."""
