"""``sweep.py run``: start a sweep from a file."""

from typing import Annotated

import typer

from tune_tf.cli.options import FileArgument, JsonOption, OverridesArgument, SettingsOption


def run(
    file: FileArgument,
    overrides: OverridesArgument = None,
    settings: SettingsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show the plan; run nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a sweep to its end.

    Example: `sweep.py run search_spaces/digits_cnn.yaml --set budget.num_samples=8`
    """
    from tune_tf.config import SweepConfig
    from tune_tf.sweep import plan_sweep, run_sweep

    config = SweepConfig.from_yaml(file, [*(settings or []), *(overrides or [])])
    base_dir = file.parent.absolute()
    from tune_tf.cli.report import print_plan, print_result
    from tune_tf.cli.session import session

    if dry_run:
        print_plan(plan_sweep(config, base_dir=base_dir), as_json=as_json)
        return
    with session(config, quiet=as_json) as callbacks:
        result = run_sweep(config, base_dir=base_dir, callbacks=callbacks)
    raise typer.Exit(print_result(result, as_json=as_json))
