"""What a sweep file is written of."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_NOT_TEXT = re.compile(r"true|false|yes|no|on|off|null|y|n|~|\.inf|\.nan", re.IGNORECASE)
_COMMENTS_AT = 36  # column


@dataclass(frozen=True)
class Line:
    """A setting of a section, with what is said about it.

    Args:
        key: Its name.
        value: As YAML text.
        comment: What is said about it; empty for nothing.
        is_off: Whether it stands in a comment, to be switched on by hand.
    """

    key: str
    value: str
    comment: str = ""
    is_off: bool = False

    def __str__(self) -> str:
        """Return the line as it stands in a section, indented."""
        return commented(f"  {'# ' if self.is_off else ''}{self.key}: {self.value}", self.comment)


@dataclass(frozen=True)
class Draft:
    """A sweep on data of one's own.

    Args:
        name: Of the sweep.
        about: What the model is, and what it learns; one line.
        workload: As the sweep file names it.
        data: Settings of the workload; none where it takes none.
        task: ``classification`` or ``regression``.
        space: Parameters beside those of the optimizer.
        num_rows: Rows of the data, as far as they are known.
        inputs: What the model takes and gives, one line each; for a workload of one's own.
    """

    name: str
    about: str
    workload: str
    data: tuple[Line, ...]
    task: str
    space: tuple[Line, ...]
    num_rows: int = 0
    inputs: tuple[str, ...] = ()


def commented(line: str, comment: str) -> str:
    """Return a line with a comment behind it, in the column of the others if it is short."""
    return f"{line:<{_COMMENTS_AT - 2}}  # {comment}" if comment else line


def scalar(value: str | float | bool) -> str:
    """Return one value as YAML text, in quotes where it would be something else without."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def flow(values: Iterable[Any]) -> str:
    """Return a list of values as YAML text on one line."""
    return f"[{', '.join(scalar(value) for value in values)}]"


def some_of(values: Iterable[object], most: int = 5) -> str:
    """Return ``a, b, c, ...`` for a comment: the first few of several values."""
    text = [" ".join(str(value).split())[:30] for value in values]
    return ", ".join(text[:most]) + (", ..." if len(text) > most else "")


def name_of(text: str) -> str:
    """Return a name for a sweep, which names a folder, made of any text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return name if re.match(r"[A-Za-z0-9]", name) else "sweep"
