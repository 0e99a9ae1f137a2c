"""``sweep.py stop``: stop a sweep that runs, or trials of it."""

from typing import Annotated

import typer

from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def stop(
    sweep: SweepArgument,
    trials: Annotated[
        list[str] | None,
        typer.Option("--trial", help="A trial of it, by number or id; may be given again."),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End it for good: write its report and best model.")
    ] = False,
    wait: Annotated[
        bool, typer.Option(help="Wait until it has stopped; otherwise it is only asked to.")
    ] = True,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Stop a sweep that another terminal or machine runs, as Ctrl-C there would.

    `resume` goes on with it; with `--end` it is over, as if its budget were spent. With `--trial`
    only these trials end, with the next iteration that they report, and the sweep goes on. It is
    asked by a file in the sweep's folder. Exit code 2: the sweep does not run, or has no such
    trial.

    Example: `sweep.py stop digits-cnn --trial 7`
    """
    from tune_tf.cli.terminal.console import make_console, print_json
    from tune_tf.cli.verbs.status import picture
    from tune_tf.inspection import SweepView
    from tune_tf.sweep.stop import stop_sweep, stop_trials

    if trials and end:
        raise typer.BadParameter(
            "ends the sweep, --trial trials of it: give one", param_hint="--end"
        )
    console = make_console()
    console.quiet = as_json
    name = SweepView.open(sweep, storage_path).sweep_id
    what = f"trial {', '.join(trials)} of {name}" if trials else name
    console.print(f"{what}: asked to stop{' ...' if wait else ''}")
    if trials:
        seen = stop_trials(sweep, trials, storage_path=storage_path, wait=wait)
    else:
        seen = stop_sweep(sweep, storage_path=storage_path, end=end, wait=wait)
    if as_json:
        print_json(seen.to_dict())
    elif wait:
        console.print(picture(seen))
