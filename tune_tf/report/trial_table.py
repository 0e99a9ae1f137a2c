"""Tables of trials: the best on the HTML page, all in a CSV file."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tune_tf.formatting import csv_cell, value_text
from tune_tf.report.plots.outcome_style import STYLES
from tune_tf.report.report_data import ReportData


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
