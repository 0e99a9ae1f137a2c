"""Plots of the optimization history and of the learning curves."""

import numpy as np

from tune_tf.formatting import counted, value_text
from tune_tf.report.plots.axis import Axis, Floats, TimeUnit, metric_axis
from tune_tf.report.plots.chart import Chart, Lines, Markers, Panel, escape_plotly_text
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.plot import NothingToDrawError, Plot
from tune_tf.report.report_data import Curve, ReportData, label_objective

_CONFIG_LINES = 14


def plot_history(record: ReportData) -> Plot:
    """Plot each trial's last value over its end time, with the best value so far as a line."""
    unit = TimeUnit.of(record.wall_s)
    times = record.end_times / unit.seconds
    is_visible = ~np.isnan(times + record.values)
    if not is_visible.any():
        raise NothingToDrawError(f"no trial reported a finite {record.objective.metric}")
    series: list[Markers | Lines] = []
    for outcome, indices in record.groups:
        style = STYLES[outcome]
        for feasible in (True, False):
            chosen = [i for i in indices if is_visible[i] and record.feasible[i] == feasible]
            if chosen:
                series.append(
                    Markers(
                        name=style.word if feasible else f"{style.word}, not feasible",
                        style=style,
                        x=times[chosen],
                        y=record.values[chosen],
                        hollow=not feasible,
                        hover="%{text}",
                        texts=[_hover_text(record, index) for index in chosen],
                    )
                )
    line = _best_so_far(record, unit)
    series.append(Lines(name="best so far", lines=[line], colour=INK, width=2))
    panel = Panel(Axis(unit.label), record.value_axis, series)
    num_hidden = len(is_visible) - int(is_visible.sum())
    return Plot(_caption(record, num_hidden), Chart([panel], record.crowded))


def _caption(record: ReportData, num_hidden: int) -> str:
    text = (
        "Each mark is a trial's value at the time it ended; the line is the best so "
        "far. If the line still moves at its end, more trials are likely to help."
    )
    if not record.feasible.all():
        text += " Hollow marks violate the constraints."
    if num_hidden:
        text += f" Not shown, without a finite value: {counted(num_hidden, 'trial')}."
    return text


def _best_so_far(record: ReportData, unit: TimeUnit) -> Floats:
    """Return the corners of the line of the best value, up to the end of the sweep."""
    times, values = record.best_so_far
    until = np.append(times, record.wall_s) / unit.seconds
    return np.column_stack([np.repeat(until, 2)[1:-1], np.repeat(values, 2)])


def _hover_text(record: ReportData, index: int) -> str:
    trial, config = record.trials[index], record.masked_configs[index]
    lines = [f"{path} = {value_text(value, limit=40)}" for path, value in config.items()]
    if len(lines) > _CONFIG_LINES:
        lines = [*lines[: _CONFIG_LINES - 1], "..."]
    lines = [
        f"trial {trial.number}, {STYLES[trial.outcome].word}",
        f"{record.objective.metric} = {value_text(float(record.values[index]))}",
        *lines,
    ]
    return "<br>".join(map(escape_plotly_text, lines))


_CAPTION = (
    "Each line is a trial, with a mark where it ended; the best trial is drawn bold. If lines that "
    "were stopped early were still crossing those that continued, the scheduler may have stopped "
    "trials too soon."
)


def plot_learning_curves(record: ReportData) -> Plot:
    """Plot the objective's metric by iteration, one line per trial, coloured by outcome."""
    values = [curve.values for curve in record.curves] or [np.empty(0)]
    axis = metric_axis(label_objective(record.objective), np.concatenate(values))
    if not np.isfinite(axis.values).any():
        raise NothingToDrawError("no trial's folder holds a report with a finite value")
    points = [_finite_points(curve) for curve in record.curves]
    series: list[Lines | Markers] = []
    opacity = max(0.3, min(0.8, 10 / max(1, len(record.trials)) ** 0.5))
    for outcome, indices in record.groups:
        style = STYLES[outcome]
        reported = [index for index in indices if len(points[index])]
        lines = [points[index] for index in reported]
        ends = np.array([line[-1] for line in lines]).reshape(-1, 2)
        series.append(
            Lines(
                name=style.word,
                in_legend=False,
                lines=lines,
                colour=style.colour,
                width=1,
                opacity=opacity,
            )
        )
        series.append(
            Markers(
                name=style.word,
                style=style,
                x=ends[:, 0],
                y=ends[:, 1],
                hover=f"trial %{{customdata}}, {style.word}<br>iteration %{{x}}: %{{y}}",
                numbers=[record.trials[index].number for index in reported],
            )
        )
    if record.best_index is not None:
        hover = "best trial<br>iteration %{x}: %{y}"
        lines = [points[record.best_index]]
        series.append(Lines(name="best trial", hover=hover, lines=lines, colour=INK, width=3))
    return Plot(_CAPTION, Chart([Panel(Axis("iteration"), axis, series)], record.crowded))


def _finite_points(curve: Curve) -> Floats:
    """Return the points of a curve with a finite value, one per row."""
    points: Floats = np.column_stack([curve.iterations, curve.values])
    return points[~np.isnan(points[:, 1])]
