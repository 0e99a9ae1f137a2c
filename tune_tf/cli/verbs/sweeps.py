"""``tune-tf list``, ``status``, ``compare`` and ``report``: sweeps as their folders show them."""

import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tune_tf.cli import options
from tune_tf.cli.console import (
    ExitCode,
    FittingTable,
    counted_states,
    make_console,
    named_values,
    print_json,
    print_json_or_lines,
    state_label,
    state_text,
)
from tune_tf.formatting import counted, duration, printable, value_text
from tune_tf.inspection import Comparison, SweepState, SweepView, compare_sweeps, list_sweeps
from tune_tf.inspection.trial_rows import local_time
from tune_tf.sweep_folder import SweepFolder

_READ_EVERY_S = 1.0


def list_command(
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """List the sweeps of a storage path, newest first.

    Shows for each whether it is running, interrupted (`resume` continues it) or ended, how its
    trials ended, and its best value. Reads only the sweeps' folders.

    Example: `tune-tf list --storage-path sweeps`
    """
    listed = list_sweeps(storage_path)
    if as_json:
        sweeps = [sweep.to_dict() for sweep in listed.sweeps]
        print_json({"sweeps": sweeps, "unreadable": dict(listed.unreadable)})
        return
    console = make_console()
    if not listed.sweeps and not listed.unreadable:
        text = f"There are no sweeps in {listed.storage_path}"
        missing = "" if listed.storage_path.exists() else ", which does not exist"
        console.print(f"{text}{missing}.", soft_wrap=True)
        return
    headers = ("sweep", "state", "best", "trials", "began", "duration")
    table = FittingTable(*headers, kept=4, wrap=["trials"])
    for sweep in listed.sweeps:
        best = sweep.best_value
        metric = sweep.config.leading_objective.metric
        table.add_row(
            sweep.sweep_id,
            state_text(sweep.state.value),
            "-" if best is None else f"{metric} {value_text(best)}",
            counted_states(sweep.counts),
            local_time(sweep.began_s) or "-",
            duration(sweep.worked_s),
        )
    console.print(table)
    for name, error in listed.unreadable.items():
        console.print(Text(f"{name}: {error}", style="red"), soft_wrap=True)


def compare_command(
    sweeps: Annotated[
        list[str], typer.Argument(metavar="SWEEP SWEEP...", help="Folders, ids or names.")
    ],
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Compare sweeps with the same objective: cost, best value and best config.

    Example: `tune-tf compare digits-cnn digits-mlp`
    """
    comparison = compare_sweeps(sweeps, storage_path=storage_path)
    if as_json:
        best = comparison.best
        print_json(
            {
                "best": best.sweep_id if best else None,
                "sweeps": [sweep.to_dict() for sweep in comparison.sweeps],
                "best_configs": comparison.best_configs,
            }
        )
    else:
        make_console().print(_comparison_table(comparison))


def _comparison_table(comparison: Comparison) -> Table:
    sweeps = comparison.sweeps
    table = Table()
    for header in ("", *(sweep.sweep_id for sweep in sweeps)):
        table.add_column(Text(header), overflow="fold")
    objective = comparison.objective
    table.add_row(
        f"best {objective.metric}",
        *(
            Text(
                "-" if sweep.best_value is None else value_text(sweep.best_value),
                style="bold green" if sweep is comparison.best else "",
            )
            for sweep in sweeps
        ),
    )
    table.add_row("by trial", *(str(it.best.number) if it.best else "-" for it in sweeps))
    table.add_row("state", *(state_text(sweep.state.value) for sweep in sweeps))
    table.add_row("trials", *(counted_states(sweep.counts) for sweep in sweeps))
    table.add_row("iterations", *(f"{sweep.num_iterations:,}" for sweep in sweeps))
    table.add_row("duration", *(duration(sweep.worked_s) for sweep in sweeps))
    searched = (f"{it.config.searcher.sampler}, {it.config.scheduler.name}" for it in sweeps)
    table.add_row("search", *searched)
    table.add_section()
    for path, values in comparison.best_configs.items():
        table.add_row(path, *("-" if it is None else value_text(it) for it in values))
    return table


def report_command(
    sweep: options.SweepArgument,
    output: Annotated[
        Path | None, typer.Option(help="Output folder; default: the sweep's.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Write the report of a sweep so far: one HTML page, its plots, and a table.

    A sweep writes its report when it ends; this verb writes it at any other time. Exit code 2: no
    such sweep, or the folder is not writable.

    Example: `tune-tf report digits-cnn --open`
    """
    from tune_tf.report import report_sweep  # slow to import

    files = report_sweep(sweep, output, storage_path=storage_path)
    page = files["report.html"]
    data = {name: str(path) for name, path in files.items()}
    print_json_or_lines(data, str(page), as_json=as_json)
    if show:
        webbrowser.open(page.absolute().as_uri())


def status(
    sweep: options.SweepArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Update until the sweep ends.")
    ] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Show the status of a sweep: its trials, the best one, the running ones, and the time left.

    Reads only the sweep's folder, so it works while the sweep runs, after a crash, and without
    MLflow. Exit code 0; with `--follow` that of `run`: 1 if no trial completed, 130 if the sweep
    was interrupted.

    Example: `tune-tf status digits-cnn --follow`
    """
    folder = SweepFolder.open(sweep, storage_path)

    def read_view(before: SweepView | None = None) -> SweepView:
        return SweepView.of(folder, before=before)

    console = make_console()
    console.quiet = as_json
    if follow:
        view = follow_status(read_view, console)
    else:
        view = read_view()
        console.print(status_view(view))
    if as_json:
        print_json(view.to_dict())
    if follow:
        if view.state is SweepState.INTERRUPTED:
            raise typer.Exit(ExitCode.INTERRUPTED)
        completed = view.counts.get("completed")
        raise typer.Exit(ExitCode.ENDED if completed else ExitCode.NOTHING_COMPLETED)


def follow_status(
    read_view: Callable[[SweepView | None], SweepView],
    console: Console,
    wait: Callable[[float], None] = time.sleep,
) -> SweepView:
    """Display a sweep until it stops running; return its last view.

    Without a terminal, a line is printed for each change. ``read_view`` gets the previous view.
    """
    from rich.live import Live

    view, line = read_view(None), ""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while view.state is SweepState.RUNNING:
            if console.is_terminal:
                live.update(status_view(view), refresh=True)
            elif line != (line := _line(view)):
                console.print(line, soft_wrap=True)
            wait(_READ_EVERY_S)
            view = read_view(view)
    console.print(status_view(view))
    return view


def status_view(sweep: SweepView) -> RenderableType:
    """Return the display of a sweep."""
    total = sweep.config.budget.num_samples
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(sweep.sweep_id, style="bold"),
        state_text(sweep.state.value),
        ProgressBar(total=total, completed=min(total, sweep.num_ended), width=24),
        f"{sweep.num_ended}/{total} trials",
    )
    parts: list[RenderableType] = [head, counted_states(sweep.counts), Text(_times(sweep))]
    parts += [Text(printable(f"  {failure}"), style="red") for failure in sweep.result.failures]
    if sweep.ended_early:
        parts.append(Text(f"Ended early: {sweep.ended_early}"))
    if sweep.fingerprint is not None:
        parts.append(Text(printable(f"Fingerprint {sweep.fingerprint}")))
        origin = Text(printable(sweep.fingerprint.origin), style="dim")
        parts.append(Padding(origin, (0, 0, 0, 2), expand=False))
    if sweep.suspension:
        parts += [Text(f"New trials are suspended: {sweep.suspension}", style="yellow")]
    if sweep.best is not None:
        config = sweep.active_config(sweep.best)
        title = Text.assemble(
            "Best ",
            (_best_value(sweep), "bold"),
            f" by trial {sweep.best.number} ({sweep.best.trial_id}), "
            f"{state_label(sweep.best.state)} at iteration {sweep.best.result.iterations}",
        )
        values = {path: value_text(value) for path, value in config.items()}
        parts += [Text(), title, named_values(values)]
    if sweep.running:
        parts += [Text(), _running(sweep)]
    if sweep.state is SweepState.INTERRUPTED:
        parts += [Text(), Text(f"Resume with: tune-tf resume {sweep.folder.path}")]
    return Group(*parts)


def _times(sweep: SweepView) -> str:
    parts = [f"began {local_time(sweep.began_s)}", f"{duration(sweep.worked_s)} of work"]
    if sweep.driver and sweep.left_s is not None:
        parts.append(f"by {sweep.driver}")
    parts.append(counted(sweep.num_iterations, "iteration"))
    if sweep.trials_per_s:
        parts.append(f"{sweep.trials_per_s * 60:.3g} trials per minute")
    if sweep.left_s is not None:
        parts.append(f"about {duration(sweep.left_s)} left")
    return ", ".join(parts)


def _best_value(sweep: SweepView) -> str:
    return f"{sweep.config.leading_objective.metric} {value_text(sweep.best_value)}"


def _running(sweep: SweepView) -> FittingTable:
    metrics = [objective.metric for objective in sweep.config.objectives]
    headers = ("running", "id", "iteration", *metrics, "trained", "node")
    table = FittingTable(*headers, kept=3 + len(metrics))
    for trial in sweep.running:
        values = (trial.result.metrics.get(metric) for metric in metrics)
        table.add_row(
            str(trial.number),
            trial.trial_id,
            f"{trial.result.iterations}/{sweep.config.scheduler.max_t}",
            *("-" if value is None else value_text(value) for value in values),
            duration(trial.trained_s) if trial.result.iterations else "-",
            Text(trial.node or "-"),
        )
    return table


def _line(sweep: SweepView) -> str:
    best = "no result yet" if sweep.best is None else f"best {_best_value(sweep)}"
    return (
        f"{sweep.sweep_id}: {sweep.num_ended}/{sweep.config.budget.num_samples} trials "
        f"({counted_states(sweep.counts)}), {counted(sweep.num_iterations, 'iteration')}, {best}"
        f"{f'; new trials are suspended: {sweep.suspension}' if sweep.suspension else ''}"
    )
