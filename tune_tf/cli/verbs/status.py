"""``sweep.py status``: show the status of a sweep."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tune_tf.cli.exit_codes import ExitCode
from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tune_tf.inspection import SweepView

_LOOK_EVERY_S = 1.0


def status(
    sweep: SweepArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Update until the sweep ends.")
    ] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Show the status of a sweep: its trials, the best one, the running ones, and the time left.

    Reads only the sweep's folder, so it works while the sweep runs, after a crash, and without
    MLflow. Exit code 0; with `--follow` that of `run`: 1 if no trial completed, 130 if the sweep
    was interrupted.

    Example: `sweep.py status digits-cnn --follow`
    """
    from tune_tf.cli.terminal.console import make_console, print_json
    from tune_tf.inspection import SweepView
    from tune_tf.sweep_folder import SweepFolder

    folder = SweepFolder.open(sweep, storage_path)

    def look(before: SweepView | None = None) -> SweepView:
        return SweepView.of(folder, before=before)

    console = make_console()
    console.quiet = as_json
    if follow:
        view = follow_status(look, console)
    else:
        view = look()
        console.print(status_view(view))
    if as_json:
        print_json(view.to_dict())
    if follow:
        raise typer.Exit(_exit_code(view))


def follow_status(
    look: "Callable[[SweepView | None], SweepView]",
    console: "Console",
    wait: Callable[[float], None] = time.sleep,
) -> "SweepView":
    """Display a sweep until it stops running; return its last view.

    Without a terminal, a line is printed for each change.

    Args:
        look: Reads the sweep, given the previous view.
        console: Console to draw on.
        wait: Sleeps for a number of seconds.
    """
    from rich.live import Live

    from tune_tf.inspection import SweepState

    view, line = look(None), ""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while view.state is SweepState.RUNNING:
            if console.is_terminal:
                live.update(status_view(view), refresh=True)
            elif line != (line := _line(view)):
                console.print(line, soft_wrap=True)
            wait(_LOOK_EVERY_S)
            view = look(view)
    console.print(status_view(view))
    return view


def status_view(sweep: "SweepView") -> "RenderableType":
    """Return the display of a sweep."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from tune_tf.cli.terminal.states import counted_states, state_text
    from tune_tf.inspection import SweepState

    total = sweep.config.budget.num_samples
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(sweep.sweep_id, style="bold"),
        state_text(sweep.state.value),
        ProgressBar(total=total, completed=min(total, sweep.num_ended), width=24),
        f"{sweep.num_ended}/{total} trials",
    )
    parts: list[RenderableType] = [head, counted_states(sweep.counts), Text(_times(sweep))]
    if sweep.ended_early:
        parts.append(Text(f"Ended early: {sweep.ended_early}"))
    if sweep.suspension:
        parts += [Text(f"New trials are suspended: {sweep.suspension}", style="yellow")]
    if sweep.best is not None:
        parts += [Text(), *_best(sweep)]
    if sweep.active:
        parts += [Text(), _running(sweep)]
    if sweep.state is SweepState.INTERRUPTED:
        parts += [Text(), Text(f"Resume with: tune-tf resume {sweep.folder.path}")]
    return Group(*parts)


def _times(sweep: "SweepView") -> str:
    from tune_tf.formatting import counted, duration
    from tune_tf.inspection.trial_rows import local_time

    parts = [f"began {local_time(sweep.began_s)}", f"{duration(sweep.worked_s)} of work"]
    if sweep.driver and sweep.left_s is not None:
        parts.append(f"by {sweep.driver}")
    parts.append(counted(sweep.num_iterations, "iteration"))
    if sweep.trials_per_s:
        parts.append(f"{sweep.trials_per_s * 60:.3g} trials per minute")
    if sweep.left_s is not None:
        parts.append(f"about {duration(sweep.left_s)} left")
    return ", ".join(parts)


def _best(sweep: "SweepView") -> "list[RenderableType]":
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from tune_tf.cli.terminal.states import state_label
    from tune_tf.formatting import value_text
    from tune_tf.space import flat

    best, space = sweep.best, sweep.config.space
    if best is None:
        return []
    metric = sweep.config.leading_objective.metric
    title = Text.assemble(
        "Best ",
        (f"{metric} {value_text(sweep.best_value)}", "bold"),
        f" by trial {best.number} ({best.trial_id}), {state_label(best.state)} at iteration "
        f"{best.result.iterations}",
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    for path, value in flat(space.active(best.result.config), space.parameters).items():
        table.add_row(Text(path), Text(value_text(value)))
    return [title, Padding(table, (0, 0, 0, 2), expand=False)]


def _running(sweep: "SweepView") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    from tune_tf.formatting import duration, value_text

    metrics = [objective.metric for objective in sweep.config.objectives]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in ("running", "id", "iteration", *metrics, "trained", "node"):
        table.add_column(header, no_wrap=True)
    for trial in sweep.active:
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


def _line(sweep: "SweepView") -> str:
    from tune_tf.cli.terminal.states import counted_states
    from tune_tf.formatting import counted, value_text

    metric = sweep.config.leading_objective.metric
    best = (
        "no result yet" if sweep.best is None else f"best {metric} {value_text(sweep.best_value)}"
    )
    return (
        f"{sweep.sweep_id}: {sweep.num_ended}/{sweep.config.budget.num_samples} trials "
        f"({counted_states(sweep.counts)}), {counted(sweep.num_iterations, 'iteration')}, {best}"
        f"{f'; new trials are suspended: {sweep.suspension}' if sweep.suspension else ''}"
    )


def _exit_code(sweep: "SweepView") -> ExitCode:
    from tune_tf.inspection import SweepState

    if sweep.state is SweepState.INTERRUPTED:
        return ExitCode.INTERRUPTED
    return ExitCode.ENDED if sweep.counts.get("completed") else ExitCode.NOTHING_COMPLETED
