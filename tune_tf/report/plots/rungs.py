"""Plot of the number of trials per rung of the scheduler."""

import numpy as np

from tune_tf.config.scheduler_settings import (
    AshaSettings,
    FreezeThawSettings,
    RaySettings,
    SchedulerSettings,
)
from tune_tf.formatting import counted
from tune_tf.report.plots.axis import Axis, options_axis
from tune_tf.report.plots.chart import Bars, Chart, Panel
from tune_tf.report.plots.outcome_style import PROMOTED_COLOUR, STYLES
from tune_tf.report.plots.plot import NothingToDrawError, Plot
from tune_tf.report.report_data import ReportData

_CAPTION = (
    "Each bar is the number of trials that reached a rung. The grey part continued to the next "
    "one; the rest ended between the two, in the way its colour shows."
)


def plot_rungs(record: ReportData) -> Plot:
    """Plot the trials that reached each rung as stacked bars: promoted, or ended by outcome."""
    scheduler = record.result.config.scheduler
    rungs = rungs_of(scheduler)
    if not rungs:
        raise NothingToDrawError(f"the scheduler {scheduler.name} has no rungs")
    iterations = np.array([trial.iterations for trial in record.trials])
    if not (iterations >= rungs[0]).any():
        after = counted(rungs[0], "iteration")
        raise NothingToDrawError(f"no trial reached the first rung, after {after}")
    ends = [*rungs[1:], np.inf]
    parts = [("continued", PROMOTED_COLOUR, [int((iterations >= end).sum()) for end in ends])]
    for outcome, indices in reversed(record.groups):
        last = iterations[indices]
        counts = [
            int(((last >= rung) & (last < end)).sum())
            for rung, end in zip(rungs, ends, strict=True)
        ]
        parts.append((STYLES[outcome].word, STYLES[outcome].colour, counts))
    bars = []
    totals = [0] * len(rungs)
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
        options_axis("rung (iterations)", [str(rung) for rung in rungs]),
        Axis("trials that reached it", high=1.1 * max(totals), fixed=True),
        bars,
        notes=[(column, total, f"{total:,}") for column, total in enumerate(totals)],
    )
    return Plot(_CAPTION, Chart([panel], record.crowded), height=480)


def rungs_of(settings: SchedulerSettings) -> tuple[int, ...]:
    """Return the iterations at which a scheduler compares trials, ascending; may be empty."""
    match settings:
        case AshaSettings() | FreezeThawSettings():
            from tune_tf.schedulers.rungs import rung_iterations

            return rung_iterations(settings.grace_period, settings.reduction_factor, settings.max_t)
        case RaySettings():
            from tune_tf.objective import Objective
            from tune_tf.schedulers.stopping import make_stopping_scheduler  # imports Ray

            return make_stopping_scheduler(Objective("loss", "min"), settings).rungs
    return ()
