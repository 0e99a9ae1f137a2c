"""How a verb that measures tells what it does at the moment."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def measuring(console: "Console") -> Iterator[Callable[[str, float], None]]:
    """Show what is measured at the moment; line by line where there is no terminal."""
    if not console.is_terminal:
        yield lambda what, done: console.print(f"{done:4.0%}  {what}", highlight=False)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda what, done: progress.update(task, description=what, completed=done)
