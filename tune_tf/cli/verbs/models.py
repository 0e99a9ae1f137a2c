"""``tune-tf export``, ``promote`` and ``retrain``: the models of a sweep."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from tune_tf.cli import options
from tune_tf.cli.console import exit_on_interrupt, print_json_or_lines
from tune_tf.errors import InvalidSettingsError
from tune_tf.inspection import SweepView
from tune_tf.record.trial_log import TrialLog
from tune_tf.sweep_folder import SweepFolder


def export(
    sweep: options.SweepArgument,
    trial: options.TrialOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Ending in .keras, in .tflite, or without a suffix the folder of a SavedModel; by "
            "default a .keras file named after sweep and trial.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Export the model of the best trial, or of another one; serving it does not need tune_tf.

    The model is that of the epoch that the trial keeps. Exit code 2: no such sweep, trial or
    checkpoint, or the format does not support the model.

    Example: `tune-tf export digits-cnn --output digits.tflite`
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are the trials'
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # ... which TensorFlow would call an error
    view = SweepView.open(sweep, storage_path)
    result = view.result
    chosen = result.best_trial if trial is None else view.trial(trial).result
    path = output or Path(f"{result.sweep_id}-trial-{chosen.number}.keras")
    if path.exists() and not force:
        raise InvalidSettingsError(
            f"{path} already exists: name another --output, or overwrite it with --force"
        )
    if chosen.checkpoint is not None:
        _load_tensorflow()
    result.export_model(path, chosen)
    written = {"path": path, "sweep_id": result.sweep_id, "trial": chosen}
    text = f"Wrote {path}: trial {chosen.number} of {result.sweep_id}"
    print_json_or_lines(written, text, as_json=as_json)


def _load_tensorflow() -> None:
    """Load TensorFlow without the notes that it prints meanwhile, whatever its log level."""
    output = TrialLog(streams=(2,))
    output.begin(Path(os.devnull))
    try:
        import tune_tf.training.export  # noqa: F401
    finally:
        output.end()


def promote(
    sweep: options.SweepArgument,
    alias: Annotated[str, typer.Option(help="It moves here from any other version.")] = "champion",
    name: Annotated[
        str | None,
        typer.Option(help="The registered model; by default as in the sweep file, or the sweep's."),
    ] = None,
    storage_path: options.StoragePathOption = options.STORAGE_PATH,
    as_json: options.JsonOption = False,
) -> None:
    """Give the sweep's best model an alias in MLflow's registry, and register it if necessary.

    Exit code 2: no such sweep, no model of it in MLflow, or MLflow does not respond.

    Example: `tune-tf promote digits-cnn --alias champion --name digits`
    """
    from tune_tf.sweep.model.best_model import promote_best

    version = promote_best(sweep, alias, name=name, storage_path=storage_path)
    text = f"{version} has the alias {alias}"
    print_json_or_lines({"version_uri": version, "alias": alias}, text, as_json=as_json)


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
    """Train the best config, or that of another trial, on all rows: a sweep of one trial.

    Its name is that of the sweep with `-retrain`. Exit code 2: no such sweep or trial, or missing
    data.

    Example: `tune-tf retrain digits-cnn --on train+validation`
    """
    folder = SweepFolder.open(sweep, storage_path)
    options.allow_remote_ray(os.environ, folder.config.cluster.address)
    with exit_on_interrupt("no model was trained"):
        from tune_tf.cli.progress import run_in_terminal
        from tune_tf.sweep import run_sweep
        from tune_tf.sweep.model.retrain import final_config

        config = final_config(
            folder.path, trial=trial, on=on, num_replicas=replicas, num_epochs=epochs
        )
        run_in_terminal(partial(run_sweep, config), config, as_json=as_json)
