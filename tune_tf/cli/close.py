"""``sweep.py close``: end in MLflow what a killed sweep has left running."""

import json
from dataclasses import asdict

import typer

from tune_tf.cli.exit_codes import ExitCode
from tune_tf.cli.options import STORAGE_PATH, JsonOption, StoragePathOption, SweepArgument


def close(
    sweep: SweepArgument,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """End in MLflow what a killed sweep has left running, if it is not to be resumed.

    Delivers first what `sync` does; then runs that are still running become KILLED with the tag
    `tune_tf.stop_reason` `interrupted`. A closed sweep can still be resumed. Exit code 1: MLflow
    has not taken everything, and nothing was ended.

    Example: `sweep.py close digits-cnn`
    """
    from tune_tf.cli.sync import told
    from tune_tf.sweep.sync import close_sweep

    closing = close_sweep(sweep, storage_path=storage_path)
    if as_json:
        told_as_data = {**asdict(closing.delivery), "run_ids": closing.run_ids}
        typer.echo(json.dumps(told_as_data, indent=2))
    else:
        count = len(closing.run_ids)
        typer.echo(told(closing.delivery))
        typer.echo(f"{count} run{'' if count == 1 else 's'} ended in MLflow.")
    left = closing.delivery.num_left
    raise typer.Exit(ExitCode.NOTHING_COMPLETED if left else ExitCode.ENDED)
