"""Plot of the number of trials per rung of the scheduler."""

import numpy as np

from tune_tf.config.scheduler_settings import (
    AshaSettings,
    BohbSettings,
    HyperbandSettings,
    PashaSettings,
    ResourceChangingSettings,
    SchedulerSettings,
)
from tune_tf.formatting import counted
from tune_tf.report.plots.axis import Axis, options_axis
from tune_tf.report.plots.chart import Bars, Chart, Panel
from tune_tf.report.plots.outcome_style import PROMOTED_COLOUR, STYLES
from tune_tf.report.plots.picture import Plot
from tune_tf.report.sweep_record import ReportData


class RungsPlot(Plot):
    """Stacked bars of the trials that reached each rung: promoted, or ended by outcome."""

    name = "rungs"
    title = "Rungs"
    height = 480

    def __init__(self, record: ReportData) -> None:
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

    def chart(self) -> Chart:
        """Return the chart."""
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
        bars = []
        totals = [0] * len(self._rungs)
        for name, colour, counts in parts:
            if any(counts):
                bars.append(
                    Bars(
                        name=name,
                        hover=f"%{{customdata}} {name}",
                        numbers=counts,
                        colour=colour,
                        places=range(len(counts)),
                        starts=totals,
                        lengths=counts,
                        horizontal=False,
                    )
                )
                totals = [total + count for total, count in zip(totals, counts, strict=True)]
        panel = Panel(
            options_axis("rung (iterations)", [str(rung) for rung in self._rungs]),
            Axis("trials that reached it", high=1.1 * max(totals), fixed=True),
            bars,
            notes=[(place, total, f"{total:,}") for place, total in enumerate(totals)],
        )
        return Chart([panel], self.crowded)


def rungs_of(settings: SchedulerSettings) -> tuple[int, ...]:
    """Return the iterations at which a scheduler compares trials, ascending; may be empty."""
    match settings:
        case ResourceChangingSettings():
            return rungs_of(settings.base)
        case AshaSettings() | PashaSettings():
            from tune_tf.schedulers.rungs import rung_iterations

            return rung_iterations(settings.grace_period, settings.reduction_factor, settings.max_t)
        case HyperbandSettings() | BohbSettings():
            from tune_tf.tune_internals.scheduler_limits import milestones  # imports Ray

            return milestones(settings.max_t, settings.reduction_factor)
    return ()
