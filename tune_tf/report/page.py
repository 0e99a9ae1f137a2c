"""HTML page of a report that works offline."""

import base64
import functools
import gzip
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tune_tf.formatting import value_text
from tune_tf.report.plots import Plot
from tune_tf.report.report_data import ReportData
from tune_tf.report.summary import best_parameters, headline, sentences
from tune_tf.secrets import mask_secrets
from tune_tf.sweep_folder import masked_sweep_file
from tune_tf.tracking.environment import versions

_MAX_ROWS = 200


def render_report(data: ReportData, plots: Mapping[str, Plot]) -> str:
    """Return the report page of a sweep, with its plots by title; secrets are masked."""
    mask = functools.cache(mask_secrets)  # configs repeat their texts
    environment = Environment(
        loader=PackageLoader("tune_tf.report"),
        autoescape=True,
        finalize=lambda value: mask(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    start = data.start_s and datetime.fromtimestamp(data.start_s, UTC)
    return environment.get_template("report.html.j2").render(
        result=data.result,
        headline=headline(data),
        sentences=sentences(data),
        parameters=best_parameters(data),
        plots=plots,
        states=[trials[0].style for trials in data.by_state.values()],
        headers=_headers(data),
        rows=[_row(data, place) for place in range(min(_MAX_ROWS, len(data.trials)))],
        settings=masked_sweep_file(data.result.config.to_yaml()),
        versions=versions(),
        started=f"{start:%d %B %Y, %H:%M UTC}" if start else "",
        figures=_figures(plots),
        plotly=Markup(_packed(get_plotlyjs())),  # noqa: S704 - Base64
    )


def _figures(plots: Mapping[str, Plot]) -> Markup:
    """Return the figures of the plots as JSON, safe in a ``script`` element."""
    text = ",".join(figure.to_json() for plot in plots.values() for figure in plot.figures)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(f"[{text}]")  # noqa: S704 - tags are escaped


@functools.cache
def _packed(script: str) -> str:
    """Return a script compressed by gzip to two fifths, encoded as Base64."""
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode("ascii")


class Cell(NamedTuple):
    """Table cell on the page: its text, its sort key, and the colour of a mark before it."""

    text: str = ""
    key: float | str | None = None  # None for an empty cell
    colour: str = ""  # empty for no mark


def _cell(value: Any) -> Cell:
    text = value_text(value)
    if not isinstance(value, float):
        return Cell(text, value if isinstance(value, int) else text)
    return Cell(text, value if math.isfinite(value) else None)


def _headers(data: ReportData) -> list[str]:
    config = data.result.config
    metrics = [objective.metric for objective in config.objectives]
    feasible = ["feasible"] if config.constraints else []
    return ["trial", "end", *metrics, "epochs", "seconds", *feasible, *config.space.parameters]


def _row(data: ReportData, place: int) -> list[Cell]:
    """Return the cells of the trial at a place of the ranking."""
    trial, config = data.ranking[place], data.result.config
    metrics = [trial.result.metrics.get(it.metric, math.nan) for it in config.objectives]
    return [
        _cell(trial.number),
        Cell(trial.style.word, trial.style.word, trial.style.colour),
        *map(_cell, metrics),
        _cell(trial.result.iterations),
        _cell(trial.view.trained_s),
        *([_cell("yes" if trial.result.feasible else "no")] if config.constraints else []),
        *(
            _cell(trial.config[path]) if path in trial.config else Cell()
            for path in config.space.parameters
        ),
    ]
