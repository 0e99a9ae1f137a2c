"""HTML pages of a report that work offline, and its tables of trials."""

import base64
import functools
import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tune_tf.formatting import csv_cell, value_text
from tune_tf.report.plots.outcome_style import GRID, INK, MUTED, STYLES
from tune_tf.report.report_data import ReportData
from tune_tf.report.summary import Summary
from tune_tf.tracking.environment import versions


@dataclass(frozen=True)
class Section:
    """Plot on the page."""

    name: str  # of the plot's files
    title: str
    caption: str  # instructions for reading the plot, or the reason why it is missing
    height: int = 0  # in pixels
    figure: dict[str, Any] | None = None  # for plotly.js; None if the plot is missing
    static_uri: str = ""  # image for browsers that cannot draw the figure; may be empty


def render_report(record: ReportData, sections: Sequence[Section]) -> str:
    """Return the report page of a sweep."""
    figures = {it.name: it.figure for it in sections if it.figure is not None}
    return render(
        "report.html.j2",
        record=record,
        summary=Summary.of(record),
        sections=sections,
        table=TrialTable.of(record),
        versions=versions(),
        started=_utc_text(record.start_s),
        figures=_in_script(figures),
        plotly=_packed(get_plotlyjs()) if figures else "",
    )


def render_static_plot(record: ReportData, section: Section, svg: str) -> str:
    """Return a page with a single plot."""
    return render("static.html.j2", record=record, section=section, svg=Markup(svg))  # noqa: S704 - Matplotlib escapes texts


def render(template: str, **values: Any) -> str:
    """Render a template of this package, with texts escaped."""
    environment = Environment(
        loader=PackageLoader("tune_tf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(ink=INK, muted=MUTED, line=GRID, **values)


def _utc_text(seconds: float) -> str:
    """Format a time in seconds since 1970; empty for NaN."""
    if math.isnan(seconds):
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %B %Y, %H:%M UTC")


def _in_script(data: Any) -> Markup:
    """Return data as JSON that is safe in a ``script`` element, without tags."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)  # noqa: S704 - tags are escaped


@functools.cache
def _packed(script: str) -> str:
    """Return a script compressed by gzip to two fifths, encoded as Base64."""
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode("ascii")


@dataclass(frozen=True)
class Cell:
    """Table cell on the page."""

    text: str
    key: float | str | None = None  # sort key; None for an empty cell
    colour: str = ""  # of a mark before the text; empty for none

    @classmethod
    def of(cls, value: object) -> "Cell":
        """Return the cell of a value."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(value_text(value), float(value) if math.isfinite(value) else None)
        text = value_text(value)
        return cls(text, text)


@dataclass(frozen=True)
class TrialTable:
    """Table of the best trials, best first, out of ``num_trials``."""

    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    num_trials: int

    @classmethod
    def of(cls, record: ReportData, limit: int = 200) -> "TrialTable":
        """Return the table of the best trials of a sweep, at most ``limit``."""
        objectives = record.result.config.objectives
        paths = list(record.result.config.space.parameters)
        constrained = bool(record.result.config.constraints)
        rows = []
        for index in record.ranking[:limit]:
            trial, config = record.trials[index], record.masked_configs[index]
            style = STYLES[trial.outcome]
            row = [
                Cell(str(trial.number), trial.number),
                Cell(style.word, style.word, style.colour),
                *(Cell.of(trial.metrics.get(it.metric, math.nan)) for it in objectives),
                Cell(str(trial.iterations), trial.iterations),
                Cell.of(float(record.curves[index].trained_s)),
                *([Cell.of("yes" if trial.feasible else "no")] if constrained else []),
                *(Cell.of(config[path]) if path in config else Cell("") for path in paths),
            ]
            rows.append(tuple(row))
        headers = ["trial", "end", *(it.metric for it in objectives), "iterations", "seconds"]
        headers += [*(["feasible"] if constrained else []), *paths]
        return cls(tuple(headers), tuple(rows), len(record.trials))


def write_csv(record: ReportData, path: Path) -> None:
    """Write all trials as CSV: :meth:`SweepResult.dataframe` plus cause, times and node.

    Secrets are masked.
    """
    frame = record.result.dataframe()
    for column in map(str, frame.columns):
        if column.startswith("config/"):
            name = column.removeprefix("config/")
            frame[column] = [config.get(name) for config in record.masked_configs]
    first = [curve.segments[0] if curve.segments else None for curve in record.curves]
    frame["cause"] = [record.cause(trial) for trial in record.trials]
    frame["trained_s"] = [curve.trained_s for curve in record.curves]
    frame["started_after_s"] = [it.start_s - record.start_s if it else np.nan for it in first]
    frame["ended_after_s"] = record.end_times
    frame["node"] = [it.host if it else "" for it in first]
    texts = frame.select_dtypes(exclude="number").columns
    frame[texts] = frame[texts].map(csv_cell)
    frame.rename(columns=csv_cell).to_csv(path, index=False)
