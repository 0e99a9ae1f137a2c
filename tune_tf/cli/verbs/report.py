"""``sweep.py report``: the page that tells what came of a sweep."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def report(
    sweep: SweepArgument,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write it into; that of the sweep by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a sweep as it stands: one HTML page, its pictures, and a table.

    A sweep writes it at its end; this writes it while the sweep runs, after it was killed, or anew.
    Exit code 2: there is no such sweep, or the folder cannot be written to.

    Example: `sweep.py report digits-cnn --open`
    """
    from tune_tf.cli.terminal.console import print_json
    from tune_tf.report import report_sweep

    files = report_sweep(sweep, output, storage_path=storage_path)
    page = files["report.html"]
    if as_json:
        print_json({name: str(path) for name, path in files.items()})
    else:
        typer.echo(page)
    if show:
        webbrowser.open(page.absolute().as_uri())
