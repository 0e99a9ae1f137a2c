"""Report of a sweep: HTML page, plots and CSV."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tune_tf.atomic_files import write_atomically
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView
from tune_tf.report.page import Section, render_report, render_static_plot, write_csv
from tune_tf.report.plots.curves import plot_history, plot_learning_curves
from tune_tf.report.plots.importances import plot_importances
from tune_tf.report.plots.parallel_coordinates import plot_parallel_coordinates
from tune_tf.report.plots.plot import (
    NothingToDrawError,
    Plot,
    draw_static,
    svg_text,
    webp_uri,
    write_png,
)
from tune_tf.report.plots.rungs import plot_rungs
from tune_tf.report.plots.scatter_grids import plot_pareto_front, plot_slices
from tune_tf.report.plots.timeline import plot_timeline
from tune_tf.report.report_data import ReportData
from tune_tf.results import SweepResult

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlotKind:
    """Kind of plot: the name of its files, its title on the page, and the function that plots."""

    name: str
    title: str
    plot: Callable[[ReportData], Plot]


_PARETO_FRONT = PlotKind("pareto_front", "Pareto front", plot_pareto_front)

PLOTS: tuple[PlotKind, ...] = (
    PlotKind("history", "History", plot_history),
    PlotKind("learning_curves", "Learning curves", plot_learning_curves),
    _PARETO_FRONT,
    PlotKind("importances", "Importances", plot_importances),
    PlotKind("slices", "Slices", plot_slices),
    PlotKind("parallel_coordinates", "Parallel coordinates", plot_parallel_coordinates),
    PlotKind("rungs", "Rungs", plot_rungs),
    PlotKind("timeline", "Timeline of slots", plot_timeline),
)
"""Plots in the order of the page."""


def write_report(
    result: SweepResult, folder: Path, updated: Callable[[], SweepResult] | None = None
) -> dict[str, Path]:
    """Write the report of a sweep: ``report.html``, ``trials.csv`` and plots in ``plots/``.

    ``report.html`` has interactive plots and works offline. ``plots/`` has each plot as a PNG and
    as a page with a vector drawing. A plot that cannot be drawn, such as importances of two trials,
    is missing there, and the report gives the reason.

    Args:
        result: The result.
        folder: Folder to write to.
        updated: Returns the result with test metrics, which only the page shows; called after the
            plots are drawn.

    Returns:
        Paths of the files, by path within the report, to be used as artifact paths.

    Raises:
        OSError: A file cannot be written.
    """
    record = ReportData.of(result)
    plots = folder / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    files = {"report.html": folder / "report.html", "trials.csv": folder / "trials.csv"}
    sections = []
    for kind in PLOTS:
        if kind is _PARETO_FRONT and len(result.config.objectives) < 2:
            continue
        try:
            section = _write_plot(kind, record, plots)
        except Exception as error:  # noqa: BLE001 - the other plots must still be written
            _LOG.exception("the plot %s of %s could not be drawn", kind.name, result.sweep_id)
            section = Section(kind.name, kind.title, f"it could not be drawn: {error!r}")
        if section.figure is not None:
            for ending in ("html", "png"):
                file = plots / f"{kind.name}.{ending}"
                files[f"plots/{file.name}"] = file
        sections.append(section)
    record = replace(record, result=updated()) if updated else record
    write_csv(record, files["trials.csv"])
    write_atomically(files["report.html"], render_report(record, sections))
    return files


def report_sweep(
    path: str | Path, folder: str | Path | None = None, *, storage_path: str | Path = "sweeps"
) -> dict[str, Path]:
    """Write the report of a running or ended sweep from its folder.

    Args:
        path: Folder or id of the sweep, or its name for the latest sweep of that name.
        folder: Folder to write to; that of the sweep's own report if None.
        storage_path: Folder to look for sweeps by id or name.

    Returns:
        Paths of the files, by path within the report.

    Raises:
        UnknownSweepError: The sweep does not exist.
        InvalidSettingsError: The folder cannot be written to.
    """
    result = SweepView.open(path, storage_path).result
    folder = result.report_path.parent if folder is None else Path(folder)
    try:
        return write_report(result, folder)
    except OSError as error:
        raise InvalidSettingsError(
            [f"the report cannot be written to {folder}: {error.strerror or error}"]
        ) from error


def _write_plot(kind: PlotKind, record: ReportData, folder: Path) -> Section:
    """Write the files of a plot; return its section of the page."""
    try:
        plot = kind.plot(record)
    except NothingToDrawError as reason:
        return Section(kind.name, kind.title, str(reason))
    figure = draw_static(kind.title, plot.height, plot.drawing.draw)
    png = folder / f"{kind.name}.png"
    write_png(figure, png)
    # Parallel coordinates need WebGL, which some browsers lack.
    static = webp_uri(png) if kind.plot is plot_parallel_coordinates else ""
    interactive = plot.drawing.to_plotly()
    section = Section(kind.name, kind.title, plot.caption, plot.height, interactive, static)
    page = render_static_plot(record, section, svg_text(figure))
    write_atomically(folder / f"{kind.name}.html", page)
    return section
