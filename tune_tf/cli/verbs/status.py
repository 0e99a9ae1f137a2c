"""``sweep.py status``: how a sweep stands."""

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
        bool, typer.Option("--follow", "-f", help="Look again until it has ended.")
    ] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Tell how a sweep stands: its trials, the best one, those that run, and the time left.

    Reads the sweep's folder only, so it works while the sweep runs, after it was killed, and
    without MLflow. One look ends with exit code 0; `--follow` with what `run` ends with: 1 if no
    trial was completed, 130 if the sweep was interrupted.

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
        seen = watch(look, console)
    else:
        seen = look()
        console.print(picture(seen))
    if as_json:
        print_json(seen.to_dict())
    if follow:
        raise typer.Exit(_exit_code(seen))


def watch(
    look: "Callable[[SweepView | None], SweepView]",
    console: "Console",
    wait: Callable[[float], None] = time.sleep,
) -> "SweepView":
    """Draw a sweep again and again until it does not run; return how it stands then.

    Where there is no terminal, a line is printed whenever something has changed.

    Args:
        look: Reads the sweep; it is given what was read before.
        console: Where to draw.
        wait: Waits for some seconds.
    """
    from rich.live import Live

    from tune_tf.inspection import SweepState

    seen, line = look(None), ""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while seen.state is SweepState.RUNNING:
            if console.is_terminal:
                live.update(picture(seen), refresh=True)
            elif line != (line := _line(seen)):
                console.print(line, soft_wrap=True)
            wait(_LOOK_EVERY_S)
            seen = look(seen)
    console.print(picture(seen))
    return seen


def picture(sweep: "SweepView") -> "RenderableType":
    """Return a sweep as it is drawn."""
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
    if sweep.held:
        parts += [Text(f"No new trial starts: {sweep.held}", style="yellow")]
    if sweep.best is not None:
        parts += [Text(), *_best(sweep)]
    if sweep.active:
        parts += [Text(), _running(sweep)]
    if sweep.state is SweepState.INTERRUPTED:
        parts += [Text(), Text(f"Go on with:  tune-tf resume {sweep.folder.path}")]
    return Group(*parts)


def _times(sweep: "SweepView") -> str:
    from tune_tf.formatting import counted, duration
    from tune_tf.inspection.trial_rows import told_time

    told = [f"began {told_time(sweep.began_s)}", f"{duration(sweep.worked_s)} of work"]
    if sweep.driver and sweep.left_s is not None:
        told.append(f"by {sweep.driver}")
    told.append(counted(sweep.num_iterations, "iteration"))
    if sweep.trials_per_s:
        told.append(f"{sweep.trials_per_s * 60:.3g} trials a minute")
    if sweep.left_s is not None:
        told.append(f"about {duration(sweep.left_s)} left")
    return ", ".join(told)


def _best(sweep: "SweepView") -> "list[RenderableType]":
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from tune_tf.cli.terminal.states import told_state
    from tune_tf.formatting import value_text
    from tune_tf.space import flat

    best, space = sweep.best, sweep.config.space
    if best is None:
        return []
    metric = sweep.config.leading_objective.metric
    title = Text.assemble(
        "Best ",
        (f"{metric} {value_text(sweep.best_value)}", "bold"),
        f" by trial {best.number} ({best.trial_id}), {told_state(best.state)} at iteration "
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
        f"{f'; no new trial starts: {sweep.held}' if sweep.held else ''}"
    )


def _exit_code(sweep: "SweepView") -> ExitCode:
    from tune_tf.inspection import SweepState

    if sweep.state is SweepState.INTERRUPTED:
        return ExitCode.INTERRUPTED
    return ExitCode.ENDED if sweep.counts.get("completed") else ExitCode.NOTHING_COMPLETED
