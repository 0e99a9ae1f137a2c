"""``sweep.py export``: export the model of a trial."""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tune_tf.cli.options import (
    STORAGE_PATH,
    JsonOption,
    StoragePathOption,
    SweepArgument,
    TrialOption,
)


class Format(StrEnum):
    """File format of a model."""

    keras = "keras"
    saved_model = "saved_model"
    tflite = "tflite"
    onnx = "onnx"


def export(
    sweep: SweepArgument,
    trial: TrialOption = None,
    file_format: Annotated[
        Format,
        typer.Option("--format", "-f", help="For Keras, TensorFlow Serving, LiteRT or ONNX."),
    ] = Format.keras,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output path; by default named after sweep and trial."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    storage_path: StoragePathOption = STORAGE_PATH,
    as_json: JsonOption = False,
) -> None:
    """Export the model of the best trial, or of another one; serving it does not need tune_tf.

    The model is that of the trial's last checkpoint. Exit code 2: no such sweep, trial or
    checkpoint, or the format does not support the model.

    Example: `sweep.py export digits-cnn --format onnx --output digits.onnx`
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the GPUs are the trials'
    from tune_tf.sweep.model.export import export_trial

    done = export_trial(
        sweep,
        output,
        trial=trial,
        file_format=file_format.value,
        storage_path=storage_path,
        force=force,
    )
    if as_json:
        data = {
            "path": str(done.path),
            "format": done.file_format,
            "sweep_id": done.sweep_id,
            "trial_id": done.trial.trial_id,
            "number": done.trial.number,
            "config": done.trial.config,
            "metrics": done.trial.metrics,
        }
        typer.echo(json.dumps(data, indent=2, default=str))
        return
    typer.echo(f"Wrote {done.path}: trial {done.trial.number} of {done.sweep_id}")
