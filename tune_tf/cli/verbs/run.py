"""``sweep.py run``: run a sweep."""

import os
from typing import Annotated

import typer

from tune_tf.cli.options import (
    AddressOption,
    FileArgument,
    JsonOption,
    OverridesArgument,
    SettingsOption,
)
from tune_tf.cli.terminal.local_ray import allow_remote_ray


def run(
    file: FileArgument,
    overrides: OverridesArgument = None,
    settings: SettingsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print the plan; run nothing.")
    ] = False,
    address: AddressOption = None,
    plan_first: Annotated[
        bool, typer.Option("--plan", help="Forecast first, as `plan` does, then run.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a sweep to its end.

    Example: `sweep.py run search_spaces/digits_cnn.yaml --set budget.num_samples=8`
    """
    from tune_tf.config import SweepConfig

    config = SweepConfig.from_yaml(file, [*(settings or []), *(overrides or [])])
    allow_remote_ray(os.environ, config.cluster.address)
    from tune_tf.sweep import plan_sweep, run_sweep

    base_dir = file.parent.absolute()
    from tune_tf.cli.terminal.result_tables import print_plan, print_result
    from tune_tf.cli.terminal.session import session

    if dry_run:
        print_plan(plan_sweep(config, base_dir=base_dir), as_json=as_json)
        return
    if plan_first:
        from tune_tf.cli.verbs.plan import print_and_save_forecast

        print_and_save_forecast(config, base_dir, quiet=as_json)
    with session(config, quiet=as_json) as callbacks:
        result = run_sweep(config, base_dir=base_dir, callbacks=callbacks)
    raise typer.Exit(print_result(result, as_json=as_json))
