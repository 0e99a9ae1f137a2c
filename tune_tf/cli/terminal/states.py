"""How the states of trials and sweeps look in a terminal."""

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
"""In the order in which they are told."""


def counted_states(counts: Mapping[str, int]) -> "Text":
    """Return ``2 running  6 completed``, in colours."""
    from rich.text import Text

    return Text("  ").join(
        Text(f"{counts[state]} {told_state(state)}", style=style)
        for state, style in STATE_STYLES.items()
        if counts.get(state)
    )


def state_text(state: str) -> "Text":
    """Return a state in its colour."""
    from rich.text import Text

    return Text(told_state(state), style=STATE_STYLES.get(state, ""))


def told_state(state: str) -> str:
    """Return a state in words."""
    return state.replace("_", " ")
