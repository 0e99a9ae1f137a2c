"""``sweep.py stop``: stop a running sweep, or some of its trials."""

from typing import Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def stop(
    sweep: SweepArgument,
    trials: Annotated[
        list[str] | None,
        typer.Option("--trial", help="A trial, by number or id; repeatable."),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End it for good, with report and best model.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has stopped.")] = True,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Stop a sweep that runs in another terminal or on another machine, like Ctrl-C there.

    `resume` continues it; with `--end` it ends as if its budget were spent. With `--trial` only
    these trials end, after the next iteration that they report. The request is a file in the
    sweep's folder. Exit code 2: the sweep is not running, or has no such trial.

    Example: `sweep.py stop digits-cnn --trial 7`
    """
    from tune_tf.cli.terminal.console import make_console, print_json
    from tune_tf.cli.verbs.status import status_view
    from tune_tf.inspection import SweepView
    from tune_tf.sweep.stop import stop_sweep, stop_trials

    if trials and end:
        raise typer.BadParameter(
            "ends the sweep, --trial only trials of it: give one of the two", param_hint="--end"
        )
    console = make_console()
    console.quiet = as_json
    name = SweepView.open(sweep, storage_path).sweep_id
    what = f"trial {', '.join(trials)} of {name}" if trials else name
    console.print(f"{what}: asked to stop{' ...' if wait else ''}")
    if trials:
        view = stop_trials(sweep, trials, storage_path=storage_path, wait=wait)
    else:
        view = stop_sweep(sweep, storage_path=storage_path, end=end, wait=wait)
    if as_json:
        print_json(view.to_dict())
    elif wait:
        console.print(status_view(view))
