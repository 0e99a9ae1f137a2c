"""``tune-tf status`` and ``report``: sweeps as their folders show them."""

import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tune_tf.cli import options
from tune_tf.cli.console import (
    ExitCode,
    counted_states,
    local_time,
    make_console,
    print_json,
    print_json_or_lines,
    state_text,
)
from tune_tf.cli.sweep_display import print_status, status_display
from tune_tf.formatting import value_text
from tune_tf.inspection import SweepState, SweepView, list_sweeps
from tune_tf.sweep_folder import SweepFolder

_READ_EVERY_S = 1.0


def status(
    sweep: Annotated[
        str | None,
        typer.Argument(help="The sweep's folder, id or name; without it, all sweeps are listed."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Draw again until the sweep ends.")
    ] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Show the status of a sweep: its trials, the best one, the running ones, and the time left.

    Without a name, lists the sweeps of the storage path, newest first. Reads only the sweeps'
    folders, so it works while a sweep runs, after a crash, and without MLflow. Exit code 0; with
    `--follow` that of `run`: 1 if no trial completed, 130 if the sweep was interrupted.

    Example: `tune-tf status digits-cnn --follow`
    """
    if sweep is None:
        if follow:
            raise typer.BadParameter("needs the name of a sweep", param_hint="--follow")
        _list(storage_path, as_json=as_json)
        return
    folder = SweepFolder.open(sweep, storage_path)
    console = make_console(quiet=as_json)
    view = follow_status(lambda: SweepView.of(folder), console) if follow else SweepView.of(folder)
    print_status(view, console)
    if as_json:
        print_json(view.to_dict())
    if follow:
        if view.state is SweepState.INTERRUPTED:
            raise typer.Exit(ExitCode.INTERRUPTED)
        completed = view.counts.get("completed")
        raise typer.Exit(ExitCode.ENDED if completed else ExitCode.NOTHING_COMPLETED)


def follow_status(
    read_view: Callable[[], SweepView],
    console: Console,
    wait: Callable[[float], None] = time.sleep,
) -> SweepView:
    """Display a sweep in a terminal until it stops running; return its last view."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while (view := read_view()).state is SweepState.RUNNING:
            live.update(status_display(view), refresh=True)
            wait(_READ_EVERY_S)
    return view


def _list(storage_path: Path, *, as_json: bool) -> None:
    sweeps = list_sweeps(storage_path)
    if as_json:
        print_json([sweep.to_dict() for sweep in sweeps])
        return
    console = make_console()
    if not sweeps:
        console.print(f"There are no sweeps in {storage_path} to be read.", soft_wrap=True)
    for sweep in sweeps:
        console.print(Text(sweep.sweep_id, "bold"), soft_wrap=True)  # whole, to be copied
        parts = [state_text(sweep.state.value), counted_states(sweep.counts)]
        if sweep.best is not None:
            metric = sweep.config.leading_objective.metric
            parts.append(Text(f"{metric} {value_text(sweep.best_value)}"))
        parts.append(Text(f"began {local_time(sweep.began_s)}"))
        console.print(Padding(Text("  ").join(parts), (0, 0, 0, 2), expand=False))


def report(
    sweep: options.SweepArgument,
    output: Annotated[
        Path | None, typer.Option(help="Output folder; default: the sweep's.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Write the report of a sweep so far: one HTML page with plots and tables.

    A sweep writes its report when it ends; this verb writes it at any other time. Exit code 2: no
    such sweep, or the folder is not writable.

    Example: `tune-tf report digits-cnn --open`
    """
    from tune_tf.report import report_sweep  # slow to import

    page = report_sweep(sweep, output, storage_path=storage_path)
    print_json_or_lines({"path": str(page)}, str(page), as_json=as_json)
    if show:
        webbrowser.open(page.absolute().as_uri())
