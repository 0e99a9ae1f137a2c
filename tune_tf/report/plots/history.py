"""Plot of the optimization history: last value of each trial over time."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tune_tf.formatting import counted, value_text
from tune_tf.report.plots.axis import Floats, TimeUnit
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.picture import (
    Plot,
    escape_plotly_text,
    label_axes,
    legend,
    plotly_axis,
    set_scale,
    styled,
    typed,
)
from tune_tf.report.sweep_record import SweepRecord

_CONFIG_LINES = 14


class History(Plot):
    """Plot of each trial's last value over its end time, with the best value so far as a line."""

    name = "history"
    title = "History"

    def __init__(self, record: SweepRecord) -> None:
        super().__init__(record)
        self._unit = TimeUnit.of(record.wall_s)
        self._times: Floats = record.end_times / self._unit.seconds
        self._drawn = ~np.isnan(self._times + record.values)

    @property
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""
        if self._drawn.any():
            return None
        return f"no trial reported a finite {self.record.objective.metric}"

    @property
    def reading(self) -> str:
        """Instructions for reading the plot."""
        hidden = len(self._drawn) - int(self._drawn.sum())
        text = (
            "Each mark is a trial's last value at the time it ended; the line is the best so "
            "far. If the line still moves at its end, more trials are likely to help."
        )
        if not self.record.feasible.all():
            text += " Hollow marks violate the constraints."
        if hidden:
            text += f" Not shown, without a finite value: {counted(hidden, 'trial')}."
        return text

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        record, axes = self.record, styled(figure.subplots())
        for outcome, indices in record.groups:
            style = STYLES[outcome]
            for feasible in (True, False):
                chosen = self._chosen(indices, feasible=feasible)
                if len(chosen):
                    axes.scatter(
                        self._times[chosen],
                        record.values[chosen],
                        s=34 if len(record.trials) < 500 else 14,
                        marker=style.marker,
                        facecolors=style.colour if feasible else "none",
                        edgecolors=style.colour,
                        linewidths=0.8,
                        alpha=0.75,
                        label=style.word if feasible else f"{style.word}, not feasible",
                    )
        times, values = self._best_line()
        axes.step(times, values, where="post", color=INK, linewidth=1.8, label="best so far")
        set_scale(axes, "y", record.value_axis)
        label_axes(axes, self._unit.label, record.objective_label)
        legend(axes, loc="best")

    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure."""
        record, data = self.record, []
        for outcome, indices in record.groups:
            style = STYLES[outcome]
            for feasible in (True, False):
                chosen = self._chosen(indices, feasible=feasible)
                if len(chosen):
                    data.append(
                        {
                            "type": "scatter",
                            "mode": "markers",
                            "name": style.word if feasible else f"{style.word}, not feasible",
                            "x": typed(self._times[chosen]),
                            "y": typed(record.values[chosen]),
                            "text": [self._hover_text(index) for index in chosen],
                            "hovertemplate": "%{text}<extra></extra>",
                            "marker": {
                                "color": style.colour,
                                "symbol": style.symbol if feasible else f"{style.symbol}-open",
                                "size": 8 if len(record.trials) < 500 else 5,
                                "opacity": 0.75,
                            },
                        }
                    )
        times, values = self._best_line()
        best = {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": typed(times),
            "y": typed(values),
            "line": {"shape": "hv", "width": 2},
            "meta": "ink",
            "hoverinfo": "skip",
        }
        layout = {
            "xaxis": {"title": {"text": self._unit.label}, "zeroline": False},
            "yaxis": plotly_axis(record.value_axis),
            "hovermode": "closest",
        }
        return {"data": [*data, best], "layout": layout}

    def _chosen(self, indices: list[int], *, feasible: bool) -> list[int]:
        return [i for i in indices if self._drawn[i] and self.record.feasible[i] == feasible]

    def _best_line(self) -> tuple[Floats, Floats]:
        """Return times and values of the best so far, up to the end of the sweep."""
        times, values = self.record.best_so_far
        if len(times):
            times = np.append(times, self.record.wall_s)
            values = np.append(values, values[-1])
        return times / self._unit.seconds, values

    def _hover_text(self, index: int) -> str:
        record = self.record
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
