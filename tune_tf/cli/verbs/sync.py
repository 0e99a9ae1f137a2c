"""``tune-tf sync``: send pending results to MLflow."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tune_tf.cli import options
from tune_tf.cli.console import ExitCode, print_json_or_lines
from tune_tf.formatting import counted

if TYPE_CHECKING:
    from tune_tf.tracking.run_writer import Delivery


def close(
    sweep: options.SweepArgument,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """End the MLflow runs that a killed sweep left running, if it is not to be resumed.

    Sends pending results first, as `sync` does; then runs still running become KILLED with the tag
    `tune_tf.stop_reason` `interrupted`. A closed sweep can still be resumed. Exit code 1: some
    results could not be sent, and no run was ended.

    Example: `tune-tf close digits-cnn`
    """
    from tune_tf.sweep.mlflow_store import close_sweep

    closing = close_sweep(sweep, storage_path=storage_path)
    data = {**asdict(closing.delivery), "run_ids": closing.run_ids}
    ended = f"{counted(len(closing.run_ids), 'run')} ended in MLflow."
    print_json_or_lines(data, delivery_text(closing.delivery), ended, as_json=as_json)
    left = closing.delivery.num_left
    raise typer.Exit(ExitCode.NOTHING_COMPLETED if left else ExitCode.ENDED)


def sync(
    sweep: options.SweepArgument,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Send to MLflow the results that were pending when the sweep ended or was killed.

    A sweep continues while its MLflow store is down, and keeps pending results in its folder. Run
    this as often as you like: nothing is written twice. Exit code 1: results are still pending.

    Example: `tune-tf sync digits-cnn`
    """
    from tune_tf.sweep.mlflow_store import sync_sweep

    delivery = sync_sweep(sweep, storage_path=storage_path)
    print_json_or_lines(asdict(delivery), delivery_text(delivery), as_json=as_json)
    raise typer.Exit(ExitCode.NOTHING_COMPLETED if delivery.num_left else ExitCode.ENDED)


def delivery_text(delivery: "Delivery") -> str:
    """Summarize a delivery."""
    if not (delivery.num_delivered or delivery.num_left):
        return "MLflow has all of the sweep; there was nothing to deliver."
    text = f"{delivery.num_delivered} entries delivered to MLflow"
    if delivery.num_refused:
        text += f", which rejected {delivery.num_refused} of their values"
    if delivery.num_left:
        return f"{text}; {delivery.num_left} are left: {delivery.error}"
    return f"{text}; nothing is left."
