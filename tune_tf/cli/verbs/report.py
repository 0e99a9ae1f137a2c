"""``sweep.py report``: write the report of a sweep."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def report_command(
    sweep: SweepArgument,
    output: Annotated[
        Path | None, typer.Option(help="Output folder; default: the sweep's.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a sweep so far: one HTML page, its plots, and a table.

    A sweep writes its report when it ends; this verb writes it at any other time. Exit code 2: no
    such sweep, or the folder is not writable.

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
