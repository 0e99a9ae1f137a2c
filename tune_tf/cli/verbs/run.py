"""``tune-tf run`` and ``stop``: run a sweep, and stop it from elsewhere."""

import os
from functools import partial
from typing import Annotated

import typer

from tune_tf.cli import options
from tune_tf.cli.console import make_console, print_json
from tune_tf.cli.verbs.estimates import print_and_save_forecast
from tune_tf.cli.verbs.sweeps import status_view
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView
from tune_tf.space.document import YamlDocument


def run(
    file: options.FileArgument,
    overrides: options.OverridesArgument = None,
    settings: options.SettingsOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, train one batch and print the plan."),
    ] = False,
    address: options.AddressOption = None,
    plan_first: Annotated[
        bool, typer.Option("--plan", help="Forecast first, as `plan` does, then run.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Run a sweep to its end.

    Example: `tune-tf run sweep.yaml --set budget.num_samples=8`
    """
    config = options.read_config(file, overrides, settings)
    options.allow_remote_ray(os.environ, config.cluster.address)
    from tune_tf.cli.progress import run_in_terminal
    from tune_tf.cli.result_tables import print_plan
    from tune_tf.sweep import plan_sweep, run_sweep

    base_dir = file.parent.absolute()
    if dry_run:
        from tune_tf.estimate.trial_check import check_sweep

        plan = plan_sweep(config, base_dir=base_dir)
        try:
            warnings = check_sweep(plan)
        except InvalidSettingsError as error:
            document = YamlDocument.read(file).overriding([*(settings or []), *(overrides or [])])
            raise InvalidSettingsError(document.locate(error.details), str(file)) from None
        print_plan(plan, warnings, as_json=as_json)
        return
    if plan_first:
        print_and_save_forecast(config, base_dir, quiet=as_json)
    run_in_terminal(partial(run_sweep, config, base_dir=base_dir), config, as_json=as_json)


def stop(
    sweep: options.SweepArgument,
    trials: Annotated[
        list[str] | None,
        typer.Option("--trial", help="A trial, by number or id; repeatable."),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End it for good, with report and best model.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has stopped.")] = True,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Stop a sweep that runs in another terminal or on another machine, like Ctrl-C there.

    `resume` continues it; with `--end` it ends as if its budget were spent. With `--trial` only
    these trials end, after the next iteration that they report. The request is a file in the
    sweep's folder. Exit code 2: the sweep is not running, or has no such trial.

    Example: `tune-tf stop digits-cnn --trial 7`
    """
    from tune_tf.sweep.stop import stop_sweep, stop_trials

    if trials and end:
        raise typer.BadParameter(
            "ends the sweep, --trial only trials of it: give one of the two", param_hint="--end"
        )
    console = make_console()
    console.quiet = as_json
    name = SweepView.open(sweep, storage_path).sweep_id
    target = f"trial {', '.join(trials)} of {name}" if trials else name
    console.print(f"{target}: asked to stop{' ...' if wait else ''}")
    if trials:
        view = stop_trials(sweep, trials, storage_path=storage_path, wait=wait)
    else:
        view = stop_sweep(sweep, storage_path=storage_path, end=end, wait=wait)
    if as_json:
        print_json(view.to_dict())
    elif wait:
        console.print(status_view(view))
