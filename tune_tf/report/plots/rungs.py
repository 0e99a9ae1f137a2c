"""Plot of the number of trials per rung of the scheduler."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tune_tf.config.scheduler_settings import (
    AshaSettings,
    BohbSettings,
    HyperbandSettings,
    PashaSettings,
    ResourceChangingSettings,
    SchedulerSettings,
)
from tune_tf.formatting import counted
from tune_tf.report.plots.outcome_style import INK, PROMOTED_COLOUR, STYLES
from tune_tf.report.plots.picture import Plot, label_axes, legend, styled
from tune_tf.report.sweep_record import SweepRecord


class RungsPlot(Plot):
    """Stacked bars of the trials that reached each rung: promoted, or ended by outcome."""

    name = "rungs"
    title = "Rungs"
    height = 480

    def __init__(self, record: SweepRecord) -> None:
        super().__init__(record)
        self._rungs = rungs_of(record.result.config.scheduler)

    @property
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""
        if not self._rungs:
            name = self.record.result.config.scheduler.name
            return f"the scheduler {name} has no rungs"
        if not any(trial.iterations >= self._rungs[0] for trial in self.record.trials):
            return f"no trial reached the first rung, after {counted(self._rungs[0], 'iteration')}"
        return None

    @property
    def reading(self) -> str:
        """Instructions for reading the plot."""
        return (
            "Each bar is the number of trials that reached a rung. The grey part continued to "
            "the next one; the rest ended between the two, in the way its colour shows."
        )

    def _parts(self) -> list[tuple[str, str, list[int]]]:
        """Return the bar segments from below: name, colour, number of trials at each rung."""
        iterations = np.array([trial.iterations for trial in self.record.trials])
        ends = [*self._rungs[1:], np.inf]
        parts = [("continued", PROMOTED_COLOUR, [int((iterations >= end).sum()) for end in ends])]
        for outcome, indices in reversed(self.record.groups):
            of_kind = iterations[indices]
            counts = [
                int(((of_kind >= rung) & (of_kind < end)).sum())
                for rung, end in zip(self._rungs, ends, strict=True)
            ]
            parts.append((STYLES[outcome].word, STYLES[outcome].colour, counts))
        return [part for part in parts if any(part[2])]

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        axes = styled(figure.subplots(), grid="y")
        places, below = np.arange(len(self._rungs)), np.zeros(len(self._rungs))
        for name, colour, counts in self._parts():
            axes.bar(places, counts, bottom=below, color=colour, width=0.65, label=name)
            below += np.array(counts)
        for place, total in zip(places, below, strict=True):
            axes.text(float(place), total, f"{int(total):,}", ha="center", va="bottom", color=INK)
        axes.set_xticks(places, labels=[f"{rung}" for rung in self._rungs])
        axes.margins(y=0.1)
        label_axes(axes, "rung (iterations)", "trials that reached it")
        legend(axes, loc="upper right")

    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure."""
        places = list(range(len(self._rungs)))
        data = [
            {
                "type": "bar",
                "name": name,
                "x": places,
                "y": counts,
                "marker": {"color": colour},
                "hovertemplate": f"%{{y}} {name}<extra></extra>",
            }
            for name, colour, counts in self._parts()
        ]
        layout = {
            "barmode": "stack",
            "xaxis": {
                "title": {"text": "rung (iterations)"},
                "tickvals": places,
                "ticktext": [str(rung) for rung in self._rungs],
            },
            "yaxis": {"title": {"text": "trials that reached it"}},
        }
        return {"data": data, "layout": layout}


def rungs_of(settings: SchedulerSettings) -> tuple[int, ...]:
    """Return the iterations at which a scheduler compares trials, ascending; may be empty."""
    match settings:
        case ResourceChangingSettings():
            return rungs_of(settings.base)
        case AshaSettings() | PashaSettings():
            from tune_tf.schedulers.rungs import rung_iterations

            return rung_iterations(settings.grace_period, settings.reduction_factor, settings.max_t)
        case HyperbandSettings() | BohbSettings():
            return _milestones()(settings.max_t, settings.reduction_factor)
    return ()


def _milestones() -> Callable[[int, float], tuple[int, ...]]:
    from tune_tf.tune_internals.scheduler_limits import milestones  # imports Ray: late

    return milestones
