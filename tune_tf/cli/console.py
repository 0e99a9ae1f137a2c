"""Consoles, tables, states of trials, JSON, CSV and exit codes on the command line."""

import contextlib
import csv
import io
import json
import logging
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tune_tf.errors import TuneTfError, UnwritableStorageError
from tune_tf.formatting import csv_cell, printable
from tune_tf.outcome_style import STYLES
from tune_tf.secrets import mask_secrets

STATE_STYLES: Final[Mapping[str, str]] = {
    **{state: style.colour for state, style in STYLES.items()},
    "ended": STYLES["completed"].colour,
}
"""Style by state, in display order."""

_FILE_WIDTH = 200


class PlainConsole(Console):
    """Console that prints text as it is: without markup and with escaped control characters."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Return the text of a cell or line."""
        return super().render_str(printable(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render an object as segments of printable text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def make_console(*, stderr: bool = False, quiet: bool = False) -> PlainConsole:
    """Return a console, wide enough for whole tables where stdout is no terminal."""
    console = PlainConsole(stderr=stderr, quiet=quiet)
    if stderr or console.is_terminal or "COLUMNS" in os.environ:
        return console
    return PlainConsole(width=_FILE_WIDTH, quiet=quiet)


def print_json(data: Any) -> None:
    """Print data as JSON, with null for non-finite numbers."""
    json.dump(_plain(data), sys.stdout, indent=2, default=str, allow_nan=False)
    sys.stdout.write("\n")


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as CSV with a header line; lists and mappings in them become JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([csv_cell(name) for name in names])
    writer.writerows([csv_cell(row.get(name)) for name in names] for row in rows)
    echo_data(text.getvalue().encode(errors="surrogateescape"))


def echo(*lines: str, err: bool = False) -> None:
    """Print lines with escaped control characters."""
    typer.echo(printable("\n".join(lines)), err=err)


def echo_data(data: bytes) -> None:
    """Print data as they are, but in a terminal as text with escaped control characters."""
    if sys.stdout.isatty():
        data = printable(data.replace(b"\r\n", b"\n").decode(errors="replace")).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_json_or_lines(data: Any, *lines: str, as_json: bool) -> None:
    """Print the result of a verb as JSON or as lines of text."""
    if as_json:
        print_json(data)
    else:
        echo(*lines)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = value.to_dict() if hasattr(value, "to_dict") else vars(value)
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def borderless_table(*headers: str, right: Iterable[str] = (), wrap: Iterable[str] = ()) -> Table:
    """Return an empty table without lines; columns named in ``wrap`` are the first to wrap."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers:
        justify: Any = "right" if header in right else "left"
        table.add_column(header, justify=justify, no_wrap=header not in wrap, overflow="fold")
    return table


def named_values(values: Mapping[str, str]) -> Padding:
    """Return an indented table of names and values."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in values.items():
        table.add_row(*(Text(printable(text), overflow="fold") for text in (name, value)))
    return Padding(table, (0, 0, 0, 2), expand=False)


def counted_states(counts: Mapping[str, int]) -> Text:
    """Format counts as ``2 running  6 completed``, in colors."""
    return Text("  ").join(
        Text(f"{counts[state]} {state_label(state)}", style=style)
        for state, style in STATE_STYLES.items()
        if counts.get(state)
    )


def state_text(state: str) -> Text:
    """Format a state in its color."""
    return Text(state_label(state), style=STATE_STYLES.get(state, ""))


def state_label(state: str) -> str:
    """Return a state with spaces for underscores."""
    return state.replace("_", " ")


def local_time(seconds: float | None) -> str:
    """Format seconds since 1970 as local time: ``2026-09-21 10:13:20``; ``-`` if unknown."""
    if seconds is None:
        return "-"
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


class ExitCode(IntEnum):
    """Exit codes of every verb; an unexpected error has 1, as in all Python programs."""

    ENDED = 0
    NOTHING_COMPLETED = 1
    WRONG_SETTINGS = 2
    INTERRUPTED = 130


@contextlib.contextmanager
def exit_on_errors() -> Iterator[None]:
    """Print a user's error as one message without a traceback, and exit."""
    try:
        yield
    except TuneTfError as error:
        echo(f"error: {error}", err=True)
        is_unwritable = isinstance(error, UnwritableStorageError)
        sys.exit(ExitCode.NOTHING_COMPLETED if is_unwritable else ExitCode.WRONG_SETTINGS)
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)


@contextlib.contextmanager
def exit_on_interrupt(otherwise: str) -> Iterator[None]:
    """Exit on Ctrl-C with the note of the interrupt that says what to do, or another one."""
    try:
        yield
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", None) or [otherwise]
        echo(f"interrupted: {notes[0]}", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


class WarningPrinter(logging.Handler):
    """Prints each warning once, in a run above the live display."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, unless its text was printed before."""
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if text not in self._printed:
            self._printed.add(text)
            style = "red" if record.levelno >= logging.ERROR else "yellow"
            self._console.print(Text(mask_secrets(text), style), soft_wrap=True)
