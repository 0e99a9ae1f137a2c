"""``sweep.py retrain``: train the final model of a sweep."""

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


class TrainingRows(StrEnum):
    """Rows that the final model is trained on."""

    all = "train+validation"
    train = "train"


def retrain(
    sweep: SweepArgument,
    trial: TrialOption = None,
    on: Annotated[
        TrainingRows, typer.Option(help="Rows to train on; never test rows.")
    ] = TrainingRows.all,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="Replicas; default: all GPUs, or as in the sweep."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Default: as many as the trial had.")
    ] = None,
    storage_path: StoragePathOption = STORAGE_PATH,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train the best config, or that of another trial, on all rows and devices.

    Writes the model, evaluates it on the test rows, and records it in MLflow with the sweep. Exit
    code 2: no such sweep or trial, missing data, or failed training.

    Example: `sweep.py retrain digits-cnn --on train+validation --epochs 50`
    """
    from tune_tf.sweep.model.retrain import retrain_trial

    def tell(epoch: int, metrics: Mapping[str, float]) -> None:
        if as_json or (epochs and epoch % max(1, epochs // _MOST_LINES)):
            return
        values = "  ".join(
            f"{name} {value:.4g}" for name, value in metrics.items() if "/" not in name
        )
        typer.echo(f"epoch {epoch}  {values}", err=True)

    model = retrain_trial(
        sweep,
        trial=trial,
        on=on.value,
        num_replicas=replicas,
        num_epochs=epochs,
        storage_path=storage_path,
        tell=tell,
    )
    if as_json:
        data = {
            "path": str(model.path),
            "model_path": str(model.model_path),
            "mlflow_run_id": model.mlflow_run_id,
            "model_uri": model.model_uri,
            "sweep_id": model.sweep_id,
            "trial_id": model.trial.trial_id,
            "number": model.trial.number,
            "on": model.on,
            "num_epochs": model.num_epochs,
            "metrics": model.metrics,
        }
        typer.echo(json.dumps(data, indent=2))
        return
    typer.echo(
        f"Trained trial {model.trial.number} of {model.sweep_id} for {model.num_epochs} epochs on "
        f"{model.on}: " + ", ".join(f"{name} {value:.4g}" for name, value in model.metrics.items())
    )
    typer.echo(f"Model:       {model.model_path}")
    if model.mlflow_run_id is not None:
        typer.echo(f"MLflow run:  {model.mlflow_run_id}, model {model.model_uri}")
