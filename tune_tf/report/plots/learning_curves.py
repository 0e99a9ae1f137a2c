"""Plot of the learning curves of all trials."""

import numpy as np

from tune_tf.report.plots.axis import Axis, Floats, metric_axis
from tune_tf.report.plots.chart import Chart, Lines, Markers, Panel
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.plot import NothingToDrawError, Plot
from tune_tf.report.report_data import Curve, ReportData, label_objective

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
