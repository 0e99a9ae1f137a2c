"""Report of a sweep: one HTML page."""

from pathlib import Path

from tune_tf.atomic_files import write_atomically
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView
from tune_tf.report.page import render_report
from tune_tf.report.plots import draw_plots
from tune_tf.report.report_data import ReportData
from tune_tf.results import SweepResult


def write_report(result: SweepResult, folder: Path) -> Path:
    """Write the report of a sweep: ``report.html``, which works offline.

    For a plot that cannot be drawn, such as importances of two trials, the page gives the reason.

    Args:
        result: The result.
        folder: Folder to write to.

    Returns:
        Path of the page.

    Raises:
        OSError: The file cannot be written.
    """
    data = ReportData.of(result)
    path = folder / "report.html"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_report(data, draw_plots(data)))
    return path


def report_sweep(
    path: str | Path, folder: str | Path | None = None, *, storage_path: str | Path = "sweeps"
) -> Path:
    """Write the report of a running or ended sweep from its folder.

    Args:
        path: Folder or id of the sweep, or its name for the latest sweep of that name.
        folder: Folder to write to; that of the sweep's own report if None.
        storage_path: Folder to look for sweeps by id or name.

    Returns:
        Path of the page.

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
