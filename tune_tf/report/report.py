"""Report of a sweep: HTML page, plots and CSV."""

import logging
from collections.abc import Callable
from pathlib import Path

from tune_tf import secrets
from tune_tf.atomic_files import write_atomically
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView
from tune_tf.report.page import Section, render_report, render_static_plot
from tune_tf.report.plots.history import History
from tune_tf.report.plots.importances import Importances
from tune_tf.report.plots.learning_curves import LearningCurves
from tune_tf.report.plots.parallel_coordinates import ParallelCoordinates
from tune_tf.report.plots.picture import Plot, draw_static, svg_text, webp_bytes, write_png
from tune_tf.report.plots.rungs import RungsPlot
from tune_tf.report.plots.scatter_grids import ParetoFront, Slices
from tune_tf.report.plots.timeline import Timeline
from tune_tf.report.sweep_record import ReportData
from tune_tf.report.trial_table import write_csv
from tune_tf.results import SweepResult

_LOG = logging.getLogger(__name__)

PICTURES: tuple[type[Plot], ...] = (
    History,
    LearningCurves,
    ParetoFront,
    Importances,
    Slices,
    ParallelCoordinates,
    RungsPlot,
    Timeline,
)
"""Plots in the order of the page."""


def write_report(
    result: SweepResult, folder: Path, *, masked: Callable[[str], str] = secrets.mask_secrets
) -> dict[str, Path]:
    """Write the report of a sweep: ``report.html``, ``trials.csv`` and plots in ``plots/``.

    ``report.html`` has interactive plots and works offline. ``plots/`` has each plot as a PNG and
    as a page with a vector drawing. A plot that cannot be drawn, such as importances of two trials,
    is missing there, and the report gives the reason. ``masked`` masks secrets in a text.

    Returns:
        Paths of the files, by path within the report, to be used as artifact paths.

    Raises:
        OSError: A file cannot be written.
    """
    record = ReportData.of(result, masked)
    plots = folder / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    written = {"report.html": folder / "report.html", "trials.csv": folder / "trials.csv"}
    sections = []
    for kind in PICTURES:
        if kind is ParetoFront and len(result.config.objectives) < 2:
            continue
        try:
            section = _write_picture(kind(record), record, plots)
        except Exception as error:  # noqa: BLE001 - the other plots must still be written
            _LOG.exception("the picture %s of %s could not be drawn", kind.name, result.sweep_id)
            section = Section(kind, f"it could not be drawn: {error!r}")
        if section.figure is not None:
            for ending in ("html", "png"):
                file = plots / f"{kind.name}.{ending}"
                written[f"plots/{file.name}"] = file
        sections.append(section)
    write_csv(record, written["trials.csv"])
    write_atomically(written["report.html"], render_report(record, sections))
    return written


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


def _write_picture(picture: Plot, record: ReportData, plots: Path) -> Section:
    """Write the files of a plot; return its section of the page."""
    if picture.missing is not None:
        return Section(picture, picture.missing)
    figure = draw_static(picture)
    write_png(figure, plots / f"{picture.name}.png")
    # Parallel coordinates need WebGL, which some browsers lack.
    static = webp_bytes(figure) if isinstance(picture, ParallelCoordinates) else b""
    section = Section(picture, picture.reading, picture.interactive(), static)
    page = render_static_plot(record, picture, svg_text(figure))
    write_atomically(plots / f"{picture.name}.html", page)
    return section
