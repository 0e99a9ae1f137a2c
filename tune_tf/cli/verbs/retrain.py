"""``sweep.py retrain``: the final model of a sweep."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from tune_tf.cli.options import (
    STORAGE_PATH,
    AddressOption,
    JsonOption,
    StoragePathOption,
    SweepArgument,
    TrialOption,
)

_MOST_LINES = 20


class Rows(StrEnum):
    """The rows that the final model is trained on."""

    all = "train+validation"
    train = "train"


def retrain(
    sweep: SweepArgument,
    trial: TrialOption = None,
    on: Annotated[
        Rows, typer.Option(help="The rows; those that no trial has seen are never among them.")
    ] = Rows.all,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="Copies of the model; by default all GPUs, or as in the sweep."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="By default as many as the trial had.")
    ] = None,
    storage_path: StoragePathOption = STORAGE_PATH,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train the best config, or that of another trial, on all rows and devices.

    Writes the model, tests it on the rows that no trial has seen, and records it in MLflow beside
    the sweep. Exit code 2: no such sweep or trial, data that are not there, or training failed.

    Example: `sweep.py retrain digits-cnn --on train+validation --epochs 50`
    """
    from tune_tf.sweep.model.retrain import retrain_trial

    def tell(epoch: int, metrics: Mapping[str, float]) -> None:
        if as_json or (epochs and epoch % max(1, epochs // _MOST_LINES)):
            return
        told = "  ".join(
            f"{name} {value:.4g}" for name, value in metrics.items() if "/" not in name
        )
        typer.echo(f"epoch {epoch}  {told}", err=True)

    done = retrain_trial(
        sweep,
        trial=trial,
        on=on.value,
        num_replicas=replicas,
        num_epochs=epochs,
        storage_path=storage_path,
        tell=tell,
    )
    if as_json:
        told = {
            "path": str(done.path),
            "model_path": str(done.model_path),
            "mlflow_run_id": done.mlflow_run_id,
            "model_uri": done.model_uri,
            "sweep_id": done.sweep_id,
            "trial_id": done.trial.trial_id,
            "number": done.trial.number,
            "on": done.on,
            "num_epochs": done.num_epochs,
            "metrics": done.metrics,
        }
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo(
        f"Trained trial {done.trial.number} of {done.sweep_id} for {done.num_epochs} epochs on "
        f"{done.on}: " + ", ".join(f"{name} {value:.4g}" for name, value in done.metrics.items())
    )
    typer.echo(f"Model:       {done.model_path}")
    if done.mlflow_run_id is not None:
        typer.echo(f"MLflow run:  {done.mlflow_run_id}, model {done.model_uri}")
