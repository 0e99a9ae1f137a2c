"""Consoles, progress bars and JSON output."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def measurement_progress(console: "Console") -> Iterator[Callable[[str, float], None]]:
    """Show the progress of a measurement: a bar in a terminal, else one line per step."""
    if not console.is_terminal:
        yield lambda what, done: console.print(f"{done:4.0%}  {what}", highlight=False)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda what, done: progress.update(task, description=what, completed=done)


_FILE_WIDTH = 200


def make_console() -> "Console":
    """Return a console on stdout, wide enough for whole tables where stdout is no terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(highlight=False, width=_FILE_WIDTH)


def print_json(data: Any) -> None:
    """Print data as JSON, with null for non-finite numbers."""
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
