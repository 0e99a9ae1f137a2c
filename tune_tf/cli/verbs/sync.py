"""``sweep.py sync``: deliver to MLflow what it had not taken when the sweep ended."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

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


if TYPE_CHECKING:
    from tune_tf.tracking.sync import Delivery


def sync(
    sweep: SweepArgument,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Deliver to MLflow what it had not taken when the sweep ended or was killed.

    A sweep goes on while its MLflow store is down, and keeps in its folder what the store has not
    taken. It may be run again and again: nothing is written twice. Exit code 1: something is left.

    Example: `sweep.py sync digits-cnn`
    """
    from tune_tf.sweep.sync import sync_sweep

    delivery = sync_sweep(sweep, storage_path=storage_path)
    if as_json:
        typer.echo(json.dumps(asdict(delivery), indent=2))
    else:
        typer.echo(told(delivery))
    raise typer.Exit(ExitCode.NOTHING_COMPLETED if delivery.num_left else ExitCode.ENDED)


def told(delivery: "Delivery") -> str:
    """Return what became of the entries, for people."""
    if not (delivery.num_delivered or delivery.num_left):
        return "MLflow has all of the sweep; there was nothing to deliver."
    text = f"{delivery.num_delivered} entries delivered to MLflow"
    if delivery.num_refused:
        text += f", which refuses {delivery.num_refused} values of them"
    if delivery.num_left:
        return f"{text}; {delivery.num_left} are left: {delivery.error}"
    return f"{text}; nothing is left."
