"""Plot of the optimization history: last value of each trial over time."""

import numpy as np

from tune_tf.formatting import counted, value_text
from tune_tf.report.plots.axis import Axis, Floats, TimeUnit
from tune_tf.report.plots.chart import Chart, Lines, Markers, Panel, escape_plotly_text
from tune_tf.report.plots.outcome_style import INK, STYLES
from tune_tf.report.plots.picture import Plot
from tune_tf.report.sweep_record import ReportData

_CONFIG_LINES = 14


class History(Plot):
    """Plot of each trial's last value over its end time, with the best value so far as a line."""

    name = "history"
    title = "History"

    def __init__(self, record: ReportData) -> None:
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

    def chart(self) -> Chart:
        """Return the chart."""
        record = self.record
        marks = []
        for outcome, indices in record.groups:
            style = STYLES[outcome]
            for feasible in (True, False):
                chosen = self._chosen(indices, feasible=feasible)
                if chosen:
                    marks.append(
                        Markers(
                            name=style.word if feasible else f"{style.word}, not feasible",
                            style=style,
                            x=self._times[chosen],
                            y=record.values[chosen],
                            hollow=not feasible,
                            hover="%{text}",
                            texts=[self._hover_text(index) for index in chosen],
                        )
                    )
        best = Lines(name="best so far", lines=[self._best_line()], colour=INK, width=2)
        panel = Panel(Axis(self._unit.label), record.value_axis, [*marks, best])
        return Chart([panel], self.crowded)

    def _chosen(self, indices: list[int], *, feasible: bool) -> list[int]:
        return [i for i in indices if self._drawn[i] and self.record.feasible[i] == feasible]

    def _best_line(self) -> Floats:
        """Return the steps of the best so far, up to the end of the sweep."""
        times, values = self.record.best_so_far
        until = np.append(times, self.record.wall_s) / self._unit.seconds
        return np.column_stack([np.repeat(until, 2)[1:-1], np.repeat(values, 2)])

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
