"""Draft and text of a generated sweep file."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tune_tf.config import SCHEMA_COMMENT

_PLAIN = re.compile(r"(\.{0,2}/)?[A-Za-z_][\w./-]*")
_NOT_TEXT = re.compile(r"true|false|yes|no|on|off|null|y|n|\.inf|\.nan", re.IGNORECASE)
_COMMENTS_AT = 36  # column
_MAX_LISTED = 5


@dataclass(frozen=True)
class Line:
    """Setting of a section as YAML text, with a comment; it may be commented out."""

    key: str
    value: str
    comment: str = ""
    is_commented_out: bool = False

    def __str__(self) -> str:
        """Return the indented line."""
        start = "  # " if self.is_commented_out else "  "
        return with_comment(f"{start}{self.key}: {self.value}", self.comment)


def path_line(key: str, path: str) -> Line:
    """Return the line of a path."""
    return Line(key, scalar(path), "relative to this file's folder")


SHARES = (
    Line("validation_share", "0.2", "of the rows, for comparing trials"),
    Line("test_share", "0.1", "no trial sees them: they are for the final model"),
)
"""Shares of the rows that are not trained on."""


DENSE_SPACE = (
    Line("num_layers", "{int: [1, 3]}"),
    Line("width", "{choice: [32, 64, 128]}"),
    Line("dropout", "{uniform: [0.0, 0.5, 0.1]}"),
)
"""Parameters of a network of dense layers."""


@dataclass(frozen=True)
class Draft:
    """Draft of a sweep on the user's data."""

    name: str
    description: str
    workload: str  # as written in the sweep file
    data: tuple[Line, ...]
    task: str
    space: tuple[Line, ...]  # besides the optimizer
    num_rows: int = 0  # unknown
    inputs: tuple[str, ...] = ()  # a line about each input of the model


def with_comment(line: str, comment: str) -> str:
    """Append a comment to a line, in a common column if the line is short."""
    return f"{line:<{_COMMENTS_AT - 2}}  # {comment}" if comment else line


def scalar(value: str | float | bool) -> str:
    """Return a value as YAML text, quoted if necessary."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def flow(values: Iterable[Any]) -> str:
    """Return values as a one-line YAML list."""
    return f"[{', '.join(scalar(value) for value in values)}]"


def abbreviate(values: Iterable[object]) -> str:
    """Return the first few values as ``a, b, c, ...`` for a comment."""
    texts = [" ".join(str(value).split())[:30] for value in values]
    return ", ".join(texts[:_MAX_LISTED]) + (", ..." if len(texts) > _MAX_LISTED else "")


def sweep_name(text: str) -> str:
    """Return a sweep name, valid as a folder name, made from any text."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return name if re.match(r"[A-Za-z0-9]", name) else "sweep"


_OBJECTIVES = {
    "classification": (
        "{metric: val_accuracy, mode: max}",
        "or any metric the model is compiled with",
    ),
    "regression": (
        "{metric: val_mae, mode: min}",
        "mean absolute error, in the unit of the target",
    ),
}
_OPTIMIZER = (
    Line("optimizer", "{choice: [adamw, sgd]}"),
    Line("momentum", "{uniform: [0.0, 0.95], when: {optimizer: sgd}}"),
    Line("learning_rate", "{loguniform: [1.0e-4, 1.0e-1]}"),
    Line("weight_decay", "{loguniform: [1.0e-6, 1.0e-2], when: {optimizer: adamw}}"),
)
_BATCH_SIZES = ((100_000, 256), (10_000, 128), (0, 32))


def sweep_text(draft: Draft, file_name: str) -> str:
    """Return the commented text of a sweep file that is ready to run."""
    objective, comment = _OBJECTIVES[draft.task]
    batch_size = next(size for rows, size in _BATCH_SIZES if draft.num_rows >= rows)
    name = scalar(file_name)
    lines = [
        SCHEMA_COMMENT,
        f"# {draft.description}",
        "#",
        f"#   tune-tf run {name} --dry-run     checks it and shows what would run",
        f"#   tune-tf run {name}               searches; after Ctrl-C, `tune-tf resume` continues",
        f"name: {scalar(draft.name)}",
        f"workload: {draft.workload}",
        *(["data:", *map(str, draft.data)] if draft.data else []),
        "",
        with_comment(f"objective: {objective}", comment),
        "",
        "# The search space. Kinds: uniform, int, loguniform, logint, choice; the first two",
        "# may have steps, as in [low, high, step]; a plain value is a constant; `when` makes a",
        "# parameter depend on another.",
        "space:",
        *map(str, (*_OPTIMIZER, *draft.space)),
        str(Line("batch_size", str(batch_size), "rows per update, over all devices of a trial")),
        "",
        with_comment("seed: 7", "for weights, data order and sampler"),
        with_comment("searcher: {sampler: auto}", "what proposes configs"),
        with_comment("epochs: 27", "of a trial, at most"),
        with_comment("keep: best", "a trial counts by its best epoch, and keeps its model"),
        "# What pauses trials after 1, 3 and 9 epochs, and goes on with the most promising ones.",
        "scheduler: {name: auto}",
        "# Devices of a trial; by default one: a GPU if there is one, else a CPU core.",
        "# parallelism: {kind: mirrored, num_replicas: 2}",
        with_comment("budget:", "the sweep ends at whichever comes first"),
        str(Line("num_samples", "24", "trials")),
        str(Line("time_budget_s", "1800", "seconds")),
        f"mlflow: {{experiment_name: {scalar(draft.name)}}}",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"
