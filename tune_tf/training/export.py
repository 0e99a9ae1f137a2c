"""Trained models of checkpoints: export to Keras, SavedModel and LiteRT files, evaluation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import keras
import numpy as np

from tune_tf.atomic_files import atomic_path
from tune_tf.data import rows_of
from tune_tf.data.rows import is_dataset
from tune_tf.errors import WorkloadError
from tune_tf.ranking import KEPT_INDEX, kept_folder
from tune_tf.remote_storage import CheckpointLocation, local_copy
from tune_tf.training.build import build_for_checkpoint
from tune_tf.training.callbacks import restore_best_weights
from tune_tf.training.checkpoint import Checkpoint
from tune_tf.training.input.device_rows import first_rows_of
from tune_tf.training.input.per_example import apply_per_example
from tune_tf.training.input.reader import is_sparse_or_ragged
from tune_tf.workload import Config, Data, Workload

FileFormat = Literal["keras", "saved_model", "tflite"]
"""File format of an exported model: Keras, TensorFlow Serving or LiteRT."""

_SERVING_FORMATS: Final = ("keras", "saved_model")  # LiteRT supports no strings or lookup tables
_KERAS_FORMATS = {"saved_model": "tf_saved_model", "tflite": "litert"}


def trained_model(workload: Workload, config: Config, location: CheckpointLocation) -> keras.Model:
    """Return the workload's model with the weights and optimizer state that a checkpoint keeps.

    Raises:
        CheckpointError: The checkpoint cannot be read or its model has another structure.
    """
    with local_copy(location) as folder:
        checkpoint = Checkpoint.read(kept_folder(folder))
        keeps_best = (folder / KEPT_INDEX).is_file()
    model = build_for_checkpoint(
        workload, config, checkpoint.seed, needs_data=checkpoint.needs_data
    )
    checkpoint.load_into(model, checkpoint.initial_rate)
    if not checkpoint.has_ended:  # else the weights are final
        model.optimizer.finalize_variable_values(model.trainable_variables)
        # The best epoch by the objective is kept even where a callback prefers another one.
        if checkpoint.callbacks.has_best_weights and not keeps_best:
            restore_best_weights(model, workload.callbacks(config), checkpoint.callbacks)
    return model


def export_trained(
    workload: Workload,
    config: Config,
    checkpoint: CheckpointLocation,
    path: Path,
    file_format: FileFormat,
) -> keras.Model:
    """Export the model of a checkpoint and return it.

    The file (the folder of a ``saved_model``) is written atomically and replaces an existing one.

    Raises:
        CheckpointError: As for :func:`trained_model`.
        WorkloadError: The model does not support the format.
    """
    model = trained_model(workload, config, checkpoint)
    if file_format != "keras":  # Keras exports a model only after a call
        if getattr(model, "inputs", None) is None:
            model(input_example(workload, config, model))
        else:  # a sequential model has no `input` before a call
            model(model.inputs[0] if isinstance(model, keras.Sequential) else model.input)
    if file_format in _SERVING_FORMATS:
        model = workload.serving_model(model, config)
    with atomic_path(path) as partial:
        try:
            if file_format == "keras":
                model.save(partial)
            else:
                model.export(partial, format=_KERAS_FORMATS[file_format], verbose=False)
        except OSError:
            raise
        except Exception as error:
            detail = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise WorkloadError(
                f"the model cannot be written as {file_format}: {detail}; a .keras file can hold "
                "every model"
            ) from error
    return model


def evaluate_test_rows(workload: Workload, config: Config, model: keras.Model) -> dict[str, float]:
    """Return the metrics on ``Data.test`` with the prefix ``test_``; empty without any."""
    part = workload.load_data(config).test
    given: dict[str, Any]
    if is_dataset(part):
        given = {"x": part}
    elif isinstance(part, tuple):
        rows: Any = rows_of(Data(part), floatx=keras.config.floatx()).train
        computed = apply_per_example(workload, config, rows, training=False)
        given = dict(zip(("x", "y", "sample_weight"), computed, strict=False))
        given["batch_size"] = workload.global_batch_size(config)
    else:
        return {}
    metrics = model.evaluate(**given, verbose=0, return_dict=True)
    return {f"test_{name}": float(value) for name, value in metrics.items()}


def input_example(workload: Workload, config: Config, model: keras.Model) -> Any:
    """Return a validation row, or a training row if there is none, as input of a model.

    Returns:
        An array of shape [1, ...], or a mapping of such arrays by the names of the model's inputs;
        None for rows with another structure.
    """
    data = workload.load_data(config)
    name = "train" if data.validation is None else "validation"
    part = getattr(data, name)
    batch = first_rows_of(part, name, 1)
    if isinstance(part, tuple) or workload.computes_rows:
        batch = apply_per_example(workload, config, batch, training=False)
    x = batch[0] if isinstance(batch, tuple) else batch
    inputs = getattr(model, "inputs", None) or ()
    if isinstance(x, tuple | list) and len(x) == len(inputs):
        x = {tensor.name: value for tensor, value in zip(inputs, x, strict=True)}
    leaves = x.values() if isinstance(x, Mapping) else [x]
    if any(is_sparse_or_ragged(leaf) or keras.tree.is_nested(leaf) for leaf in leaves):
        return None
    return keras.tree.map_structure(_as_trained, x)


def _as_trained(leaf: Any) -> "np.ndarray[Any, Any]":
    """Return an array in the type that training casts it to."""
    array = np.asarray(leaf)
    return array.astype(keras.config.floatx()) if array.dtype.kind == "f" else array
