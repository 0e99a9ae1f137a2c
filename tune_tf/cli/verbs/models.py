"""``tune-tf export``, ``promote`` and ``retrain``: the models of a sweep."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from tune_tf.cli import options
from tune_tf.cli.console import echo, print_json_or_lines


def export(
    sweep: options.SweepArgument,
    trial: options.TrialOption = None,
    file_format: Annotated[
        Literal["keras", "saved_model", "tflite"],
        typer.Option("--format", "-f", help="For Keras, TensorFlow Serving or LiteRT."),
    ] = "keras",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output path; by default named after sweep and trial."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Export the model of the best trial, or of another one; serving it does not need tune_tf.

    The model is that of the trial's last checkpoint. Exit code 2: no such sweep, trial or
    checkpoint, or the format does not support the model.

    Example: `tune-tf export digits-cnn --format tflite --output digits.tflite`
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are the trials'
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # ... which TensorFlow would call an error
    from tune_tf.sweep.model.export import export_trial

    model = export_trial(
        sweep,
        output,
        trial=trial,
        file_format=file_format,
        storage_path=storage_path,
        force=force,
    )
    text = f"Wrote {model.path}: trial {model.trial.number} of {model.sweep_id}"
    print_json_or_lines(model, text, as_json=as_json)


def promote(
    sweep: options.SweepArgument,
    alias: Annotated[
        str, typer.Option(help="The alias; it moves here from any other version.")
    ] = "champion",
    name: Annotated[
        str | None,
        typer.Option(
            help="The registered model; default: that of the sweep file, or the sweep's name."
        ),
    ] = None,
    retrained: Annotated[
        bool, typer.Option("--retrained", help="Promote the latest final model of `retrain`.")
    ] = False,
    even_if_worse: Annotated[
        bool,
        typer.Option(
            "--even-if-worse", help="With --retrained: although it tests worse than the trial."
        ),
    ] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Give the sweep's best model an alias in MLflow's registry.

    Registers the model first if necessary. Exit code 2: no such sweep, no model of it in MLflow, a
    final model that tests worse than its trial, or MLflow does not respond.

    Example: `tune-tf promote digits-cnn --alias champion --name digits`
    """
    from tune_tf.sweep.model.best_model import promote_best

    model = promote_best(
        sweep,
        alias,
        name=name,
        retrained=retrained,
        even_if_worse=even_if_worse,
        storage_path=storage_path,
    )
    lines = [f"{model.uri} is {model.version_uri}: trial {model.trial.number} of {model.sweep_id}"]
    if model.before:
        lines.append(f"Previously: {model.before}")
    print_json_or_lines(model, *lines, as_json=as_json)


def retrain(
    sweep: options.SweepArgument,
    trial: options.TrialOption = None,
    on: Annotated[
        Literal["train+validation", "train"],
        typer.Option(help="Rows to train on; never test rows."),
    ] = "train+validation",
    replicas: Annotated[
        int | None,
        typer.Option(min=1, help="Replicas; default: as in the sweep."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Default: those of the epoch that the trial keeps.")
    ] = None,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Train the best config, or that of another trial, on all rows.

    Writes the model, evaluates it and the trial's own on the test rows, and records it in MLflow
    with the sweep. Exit code 2: no such sweep or trial, missing data, or failed training.

    Example: `tune-tf retrain digits-cnn --on train+validation`
    """
    from tune_tf.sweep.model.retrain import retrain_trial

    def show_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
        named = (f"{name} {value:.4g}" for name, value in metrics.items() if "/" not in name)
        echo(f"epoch {epoch}  {'  '.join(named)}", err=True)

    model = retrain_trial(
        sweep,
        trial=trial,
        on=on,
        num_replicas=replicas,
        num_epochs=epochs,
        storage_path=storage_path,
        on_epoch=show_epoch,
    )
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in model.metrics.items())
    lines = [
        f"Trained trial {model.trial.number} of {model.sweep_id} for {model.num_epochs} epochs on "
        f"{model.on}: {metrics}",
        f"Model:       {model.model_path}",
    ]
    if model.mlflow_run_id is not None:
        lines.append(f"MLflow run:  {model.mlflow_run_id}, model {model.model_uri}")
    comparison = None
    if model.comparison is not None:
        comparison = {**vars(model.comparison), "is_worse": model.comparison.is_worse}
        if model.comparison.is_worse:
            lines.append(
                f"It tests WORSE than trial {model.trial.number}: {model.comparison}. `tune-tf "
                "promote --retrained` refuses it without --even-if-worse."
            )
    data = {**vars(model), "comparison": comparison}
    print_json_or_lines(data, *lines, as_json=as_json)
