"""States of trials and sweeps in a terminal."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.text import Text

STATE_STYLES: Final[Mapping[str, str]] = {
    "running": "cyan",
    "pending": "dim",
    "paused": "dim",
    "completed": "green",
    "pruned": "yellow",
    "out_of_budget": "yellow",
    "interrupted": "magenta",
    "diverged": "red",
    "oom": "red",
    "error": "red",
    "ended": "green",
}
"""Style by state, in display order."""


def counted_states(counts: Mapping[str, int]) -> "Text":
    """Format counts as ``2 running  6 completed``, in colors."""
    from rich.text import Text

    return Text("  ").join(
        Text(f"{counts[state]} {state_label(state)}", style=style)
        for state, style in STATE_STYLES.items()
        if counts.get(state)
    )


def state_text(state: str) -> "Text":
    """Format a state in its color."""
    from rich.text import Text

    return Text(state_label(state), style=STATE_STYLES.get(state, ""))


def state_label(state: str) -> str:
    """Return a state with spaces for underscores."""
    return state.replace("_", " ")
