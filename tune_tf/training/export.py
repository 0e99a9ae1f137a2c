"""A trained model out of a checkpoint, and as files that serve it."""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import keras

from tune_tf.errors import WorkloadError
from tune_tf.remote_storage import CheckpointPlace, local_copy
from tune_tf.training.core.build import build_to_load
from tune_tf.training.core.checkpoint import Checkpoint
from tune_tf.training.input.input_example import input_example
from tune_tf.workload import Config, Workload

_FUNCTIONS = (
    keras.activations,
    keras.losses,
    keras.metrics,
    keras.initializers,
    keras.regularizers,
    keras.constraints,
    keras.ops,
)


def custom_objects(model: keras.Model) -> tuple[str, ...]:
    """Return the names of classes and functions in a model that Keras alone does not know.

    In order of the alphabet; a lambda goes by ``lambda``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Keras cannot write is told when it is saved
        config = keras.saving.serialize_keras_object(model)
    return tuple(sorted(set(_custom(config))))


def _custom(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        name = node.get("class_name")
        if name in ("Lambda", "__lambda__"):
            yield "lambda"
        elif name == "function":
            function = str(node.get("config"))
            if not any(hasattr(module, function) for module in _FUNCTIONS):
                yield function
        elif name and not _is_of_keras(node):
            yield str(node.get("registered_name") or name)
        for value in node.values():
            yield from _custom(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _custom(value)


def _is_of_keras(node: dict[str, Any]) -> bool:
    """Whether Keras itself has the class; of a class of ``__main__`` it writes no module."""
    module = node.get("module")
    if module is None:
        return not node.get("registered_name")
    return module.split(".")[0] in ("keras", "builtins")


FileFormat = Literal["keras", "saved_model", "tflite", "onnx"]
"""How a model is written: for Keras, for TensorFlow Serving, for LiteRT or for ONNX Runtime."""

_SERVED: Final = ("keras", "saved_model")  # the others have no strings, and no tables of them
_OF_KERAS = {"saved_model": "tf_saved_model", "tflite": "litert"}


def trained_model(workload: Workload, config: Config, place: CheckpointPlace) -> keras.Model:
    """Return the workload's model with the weights and optimizer state of a checkpoint.

    Raises:
        CheckpointError: The checkpoint cannot be read or is of another structure.
    """
    with local_copy(place) as folder:
        checkpoint = Checkpoint.read(folder)
    needs_data = checkpoint.needs_data
    model = build_to_load(workload, config, checkpoint.seed, needs_data=needs_data)
    checkpoint.load_into(model, checkpoint.initial_rate)
    if not checkpoint.has_ended:  # else the callbacks had the last word
        model.optimizer.finalize_variable_values(model.trainable_variables)
    return model


def export_trained(
    workload: Workload,
    config: Config,
    checkpoint: CheckpointPlace,
    path: Path,
    file_format: FileFormat,
) -> keras.Model:
    """Write the model of a checkpoint in a format, in place of what was there before.

    Args:
        workload: Whose model.
        config: The trial's values.
        checkpoint: Where its checkpoint is.
        path: The file, or the folder of a ``saved_model``; it is whole or not there.
        file_format: How it is written.

    Returns:
        The model.

    Raises:
        CheckpointError: As for :func:`trained_model`.
        WorkloadError: The model cannot be written so.
    """
    model = trained_model(workload, config, checkpoint)
    if file_format != "keras":  # Keras writes a model only once it was called
        symbolic = getattr(model, "inputs", None) is not None
        model(model.input if symbolic else input_example(workload, config, model))
    if file_format in _SERVED:
        model = workload.serving_model(model, config)
    with _in_place_of(path) as partial:
        try:
            if file_format == "keras":
                model.save(partial)
            elif file_format == "onnx":
                _export_onnx(model, partial)
            else:
                model.export(partial, format=_OF_KERAS[file_format], verbose=False)
        except OSError:
            raise
        except Exception as error:
            told = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise WorkloadError(
                f"the model cannot be written as {file_format}: {told}; format keras takes every "
                "model"
            ) from error
    return model


def _export_onnx(model: keras.Model, path: Path) -> None:
    """Write a model for ONNX Runtime.

    ``model.export(format="onnx")`` would ask callers for the constants of normalising layers: what
    such a layer keeps in a tensor becomes an input of the graph. A SavedModel has them inside.

    Raises:
        RuntimeError: It has what ONNX has not, as tf2onnx says.
    """
    with tempfile.TemporaryDirectory(prefix="tune_tf-") as folder:
        model.export(folder, format="tf_saved_model", verbose=False)
        arguments = ["--saved-model", folder, "--output", str(path)]
        done = subprocess.run(  # noqa: S603  its documented way for a SavedModel
            [sys.executable, "-m", "tf2onnx.convert", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode or not path.exists():
        raise RuntimeError((done.stderr.strip().splitlines() or ["tf2onnx failed"])[-1])
    onnx = importlib.import_module("onnx")  # an extra
    onnx.checker.check_model(str(path))  # tf2onnx writes what it cannot translate all the same


@contextlib.contextmanager
def _in_place_of(path: Path) -> Iterator[Path]:
    """Make a file or folder that takes the place of another once it is whole."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        if path.is_dir():
            shutil.rmtree(path)
        partial.replace(path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)
