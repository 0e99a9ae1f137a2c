"""Content of a generated sweep file."""

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
    """Setting of a section, with a comment.

    Args:
        value: Value as YAML text.
        is_off: Whether the setting is commented out.
    """

    key: str
    value: str
    comment: str = ""
    is_off: bool = False

    def __str__(self) -> str:
        """Return the indented line."""
        return with_comment(
            f"  {'# ' if self.is_off else ''}{self.key}: {self.value}", self.comment
        )


@dataclass(frozen=True)
class Draft:
    """Draft of a sweep on the user's data.

    Args:
        about: One-line description of the model and its task.
        workload: Workload as written in the sweep file.
        data: Settings of the workload, if any.
        task: ``classification`` or ``regression``.
        space: Parameters besides those of the optimizer.
        num_rows: Number of rows; 0 if unknown.
        inputs: One-line descriptions of the model's inputs, for a custom workload.
    """

    name: str
    about: str
    workload: str
    data: tuple[Line, ...]
    task: str
    space: tuple[Line, ...]
    num_rows: int = 0
    inputs: tuple[str, ...] = ()


def with_comment(line: str, comment: str) -> str:
    """Append a comment to a line, in a common column if the line is short."""
    return f"{line:<{_COMMENTS_AT - 2}}  # {comment}" if comment else line


def scalar(value: str | float | bool) -> str:
    """Return a value as YAML text, quoted if necessary."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def flow(values: Iterable[Any]) -> str:
    """Return values as a one-line YAML list."""
    return f"[{', '.join(scalar(value) for value in values)}]"


def abbreviate(values: Iterable[object], most: int = 5) -> str:
    """Return the first few values as ``a, b, c, ...`` for a comment."""
    text = [" ".join(str(value).split())[:30] for value in values]
    return ", ".join(text[:most]) + (", ..." if len(text) > most else "")


def sweep_name(text: str) -> str:
    """Return a sweep name, valid as a folder name, made from any text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return name if re.match(r"[A-Za-z0-9]", name) else "sweep"
