"""Where a verb prints its tables."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_OF_A_FILE = 200


def make_console() -> "Console":
    """Return a console on stdout; in a pipe or file it is wide, so that tables are whole."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(highlight=False, width=_WIDTH_OF_A_FILE)


def print_json(data: Any) -> None:
    """Print a result as JSON and nothing else; what is not finite becomes null."""
    json.dump(_plain(data), sys.stdout, indent=2, default=str, allow_nan=False)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value
